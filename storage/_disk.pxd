# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._fs cimport FileCalls, Files

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


# One piece of disk work. Put it first in a larger struct and let `run` cast.
cdef struct Job:
    Job* next
    int (*run)(Job* job, const FileCalls* calls) noexcept nogil   # 0 or a negative errno
    int* sync_fd        # when not NULL: synced after `run`, shared with neighbours in the queue
    int result


cdef struct DiskQueue:
    FileCalls calls
    pthread_mutex_t lock
    pthread_cond_t wake
    pthread_cond_t idle
    Job* waiting_head
    Job* waiting_tail
    Job* done_head
    Job* done_tail
    uint64_t syncs
    uint64_t sync_ns
    int failed          # negative errno of the first failure, latched
    int stopping
    int busy
    int rung            # event_fd is readable
    int event_fd


cdef class DiskThread:
    cdef DiskQueue queue
    cdef pthread_t thread
    cdef Files files
    cdef bint threaded
    cdef bint started
    cdef readonly int event_fd
    cdef uint64_t slow_until_ns         # the disk keeps writers waiting: nothing is run by the owner
    cdef void submit(self, Job* job) noexcept
    cdef bint run_here(self, Job* job) noexcept
    cdef Job* reap(self) noexcept
    cdef void ring(self) noexcept
    cdef void wait_idle(self) noexcept
    cpdef void stop(self) noexcept
    cpdef void close(self)
