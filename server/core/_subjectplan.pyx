# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A subject transform made ready for the data path.

Contract. `apply` maps a subject as `transform.SubjectTransform` does, byte for byte. Texts,
wildcards and partitions are put together in C; a destination with another function is left to
Python, and what it said of a subject is kept, for a bounded number of subjects.
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from server.core._subject cimport SUBJECT_LITERAL, subject_kind, token_end, token_is

cdef enum:
    FNV_OFFSET = 2166136261
    FNV_PRIME = 16777619
    SUBJECTS_KEPT_MAX = 4096

cdef set IN_C = {"", "wildcard", "partition"}


cdef class SubjectPlan:
    def __cinit__(self):
        self.found = {}

    def __init__(self, transform not None):
        pieces = transform.pieces
        self.transform = transform
        self.source = transform.source.encode("utf-8", "surrogateescape")
        self.in_python = any(piece.function not in IN_C for piece in pieces)
        self.changes = any(piece.function == "random" for piece in pieces)
        tokens = self.source.count(b".") + 1
        self.steps = <Step*>calloc(len(pieces), sizeof(Step))
        self.keys = <uint32_t*>calloc(sum(len(piece.tokens) for piece in pieces) + 1, sizeof(uint32_t))
        self.starts = <size_t*>calloc(tokens, sizeof(size_t))
        self.ends = <size_t*>calloc(tokens, sizeof(size_t))
        if not (self.steps and self.keys and self.starts and self.ends):
            raise MemoryError
        if not self.in_python:
            self.prepare(pieces, tokens, transform.is_open_ended)

    def __dealloc__(self):
        free(self.steps)
        free(self.keys)
        free(self.starts)
        free(self.ends)
        free(self.text)

    cdef int prepare(self, pieces, uint32_t tokens, bint is_open_ended) except -1:
        cdef uint32_t key_count = 0
        cdef Step* step
        texts = bytearray()
        for piece in pieces:
            step = &self.steps[self.step_count]
            self.step_count += 1
            if piece.function == "wildcard":
                step.kind, step.at = TOKEN, piece.tokens[0]
            elif piece.function == "partition":
                step.kind, step.at, step.count = PARTITION, key_count, len(piece.tokens)
                step.partitions = piece.number & 0xFFFFFFFF
                for position in piece.tokens:
                    self.keys[key_count] = position
                    key_count += 1
            else:
                text = piece.text.encode("utf-8", "surrogateescape")
                step.kind, step.at, step.count = PLAIN, len(texts), len(text)
                texts += text
        if is_open_ended:
            step.kind, step.at = REST, tokens - 1
        self.texts = bytes(texts)
        return 0

    cdef bint apply(self, const char* subject, size_t length) except -1:
        cdef const Step* step
        cdef size_t at, start
        if subject_kind(subject, length) != SUBJECT_LITERAL:
            return False
        if self.in_python:
            return self.ask_python(subject, length)
        if not self.covers(subject, length):
            return False
        self.text_len = 0
        for at in range(self.step_count):
            step = &self.steps[at]
            if at:
                self.put(b".", 1)
            if step.kind == PLAIN:
                self.put(<const char*>self.texts + step.at, step.count)
            elif step.kind == PARTITION:
                self.put_partition(step, subject, length)
            else:
                start = self.starts[step.at]
                self.put(
                    subject + start, (length if step.kind == REST else self.ends[step.at]) - start
                )
        return True

    cdef bint covers(self, const char* subject, size_t length) noexcept:
        """Whether the source does; notes where the subject's tokens are."""
        cdef const char* source = self.source
        cdef size_t source_len = len(self.source)
        cdef size_t i = 0, j = 0, i_end, j_end, token = 0
        while True:
            i_end = token_end(source, source_len, i)
            j_end = token_end(subject, length, j)
            self.starts[token] = j
            self.ends[token] = j_end
            token += 1
            if token_is(source, i, i_end, c">"):
                return True
            if not token_is(source, i, i_end, c"*") and (
                i_end - i != j_end - j or memcmp(source + i, subject + j, i_end - i) != 0
            ):
                return False
            if i_end == source_len or j_end == length:
                return i_end == source_len and j_end == length
            i = i_end + 1
            j = j_end + 1

    cdef int put(self, const char* part, size_t length) except -1:
        cdef size_t wanted = self.text_len + length
        cdef char* bigger
        if wanted > self.room:
            bigger = <char*>realloc(self.text, 2 * wanted)
            if bigger == NULL:
                raise MemoryError
            self.text = bigger
            self.room = 2 * wanted
        memcpy(self.text + self.text_len, part, length)
        self.text_len = wanted
        return 0

    cdef int put_partition(self, const Step* step, const char* subject, size_t length) except -1:
        """FNV-1a of the key, modulo the number of partitions."""
        cdef uint32_t value = FNV_OFFSET
        cdef char[10] digits
        cdef size_t key, start = 0, end = length, at
        for key in range(max(step.count, <uint32_t>1)):
            if step.count:
                start = self.starts[self.keys[step.at + key]]
                end = self.ends[self.keys[step.at + key]]
            for at in range(start, end):
                value = (value ^ <unsigned char>subject[at]) * <uint32_t>FNV_PRIME
        value = value % step.partitions if step.partitions else 0
        at = sizeof(digits)
        while True:
            at -= 1
            digits[at] = 48 + value % 10
            value //= 10
            if value == 0:
                return self.put(digits + at, sizeof(digits) - at)

    cdef bint ask_python(self, const char* subject, size_t length) except -1:
        cdef bytes name = subject[:length]
        cdef object mapped = self.found.get(name)
        if mapped is None:
            mapped = self.transform.apply(name.decode("utf-8", "surrogateescape"))
            mapped = b"" if mapped is None else mapped.encode("utf-8", "surrogateescape")
            if not self.changes:
                if len(self.found) == SUBJECTS_KEPT_MAX:
                    self.found.clear()
                self.found[name] = mapped
        self.text_len = 0
        self.put(<bytes>mapped, len(<bytes>mapped))
        return self.text_len > 0

    def mapped(self, bytes subject not None):
        """What becomes of the subject; None when it does not match."""
        return self.text[:self.text_len] if self.apply(subject, len(subject)) else None
