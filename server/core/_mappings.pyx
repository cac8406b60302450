# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""An account's subject mappings: what its clients publish to one subject goes to another.

Contract: the sources are a small trie whose match cache answers for subjects that are not mapped;
of several mappings for a subject the one that was configured first holds. The destinations of a
mapping share a hundred messages by their weights. What the weights leave goes to the subject
itself, unless the source is a destination of its own: then it is lost.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport strtoul

from server.core._subjectplan cimport SubjectPlan
from server.core._sublist cimport MatchResult, Sublist

from server.core.transform import SubjectTransform, tokenized

cdef enum:
    ALL_PERCENT = 100


cdef inline uint32_t below_hundred(uint64_t* state) noexcept nogil:
    """A step of the generator that also picks the members of queue groups."""
    cdef uint64_t x = state[0]
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    state[0] = x
    return <uint32_t> (((x * 0x2545F4914F6CDD1DULL) >> 32) * ALL_PERCENT >> 32)


def shares(str source not None, destinations, bint keeps_source):
    """(subject, up to which hundredth) of the destinations and of what they leave, rarest first."""
    found = [(to, percent) for to, percent in destinations]
    left = ALL_PERCENT - sum(percent for _, percent in found)
    if left and keeps_source:
        found.append((tokenized(source), left))
    found.sort(key=lambda share: share[1])
    upto = 0
    summed = []
    for to, percent in found:
        upto += percent
        summed.append((to, upto))
    return summed


def described(to, upto, str cluster=""):
    shown = {"subject": to, "weight": upto}
    return shown | {"cluster": cluster} if cluster else shown


cdef class Mappings:
    def __init__(self, random_below):
        self.random_below = random_below
        self.sources = Sublist()
        self.held, self.ways, self.described = [], [], {}

    def add(self, str source not None, by_cluster not None):
        """`by_cluster`: the destinations (subject, percent) for each cluster, "" for all others."""
        keeps_source = all(to != source for tos in by_cluster.values() for to, _ in tos)
        summed = {
            cluster: shares(source, tos, keeps_source)
            for cluster, tos in ({"": ()} | by_cluster).items()
        }
        self.ways.append([
            (SubjectPlan(SubjectTransform(source, to, random_below=self.random_below)), upto)
            for to, upto in summed[""]
        ])
        self.described[source] = [
            described(to, upto, cluster) for cluster, tos in summed.items() for to, upto in tos
        ]
        place = b"%d" % (len(self.ways) - 1)
        self.held.append(self.sources.add(source.encode("utf-8", "surrogateescape"), sid=place))

    cdef bint apply(self, const char* subject, size_t length, uint64_t* random) except -1:
        cdef MatchResult* result = self.sources.match(subject, length)
        cdef SubjectPlan plan
        cdef uint32_t i, drawn
        cdef size_t place, first = len(self.ways)
        for i in range(result.plain_count):
            place = strtoul(result.plain[i].sid, NULL, 10)
            first = min(first, place)
        if first == <size_t> len(self.ways):
            return False
        self.text, self.text_len = b"", 0
        ways = <list> self.ways[first]
        drawn = below_hundred(random)
        for each, upto in ways:
            if drawn < <uint32_t> upto:
                plan = each
                if not plan.apply(subject, length):
                    return False
                self.text, self.text_len = plan.text, plan.text_len
                break
        return True

    def mapped(self, bytes subject not None, uint64_t random=1):
        return self.text[:self.text_len] if self.apply(subject, len(subject), &random) else None
