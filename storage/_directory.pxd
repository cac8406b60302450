# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._batches cimport BatchedDirectory
from storage._blockhome cimport BlockHome
from storage._replay cimport Replay


cdef class DataDirectory(BatchedDirectory):
    cdef readonly dict locked           # group -> (BlockHome, label): no key opens these; nobody writes to them
    cdef dict wrapped                   # group -> the key of an encrypted stream, as it is wrapped in its meta
    cdef readonly object keys           # DirectoryKeys; None: nothing is encrypted
    cdef object label_of
    cdef object codec_of
    cdef bint scrub_log                 # a stream was turned into an encrypted one: old segments go
    cdef readonly list damage           # sentences: what recovery found in the log and the layout
    cdef readonly bytes identity
    cdef bint threaded
    cdef uint64_t salt
    cdef uint64_t next_group
    cdef object lock
    cdef dict found_settings            # group -> settings as a start read them, until somebody asks
    cdef uint64_t life_ticket           # the newest batch that makes, changes or deletes a stream
    cdef int keep_log(self, Replay found) except -1
    cdef int replay(self, Replay found) except -1
