# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The disk thread: a queue of jobs in, writes and one sync for all of them, an eventfd out.

Contract:
- Jobs run in the order of `submit`. A job that names a descriptor to sync shares that sync with the
  jobs behind it that name the same one. It is done when its sync is.
- The first failure is latched: that job and every later one is answered with its errno and nothing
  more is written. A failed sync is never tried again, because the kernel may have dropped the pages.
- The thread never needs the GIL. `event_fd` becomes readable when jobs are done; `reap` takes them and
  stills it. Who reaps without telling the listener must `ring`.
- `run_here` is for a small write that nothing waits for: handing it over costs more than doing it.
- `threaded=False` runs each job inside `submit`: for the simulator, and for tests that count syncs.

The queue's bound is its owner's: `CommitLog` counts the bytes that are under way.
"""
import os

from libc.stdint cimport uint64_t

cdef extern from "pthread.h" nogil:
    int pthread_create(pthread_t* thread, void* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* lock, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* lock)
    int pthread_mutex_lock(pthread_mutex_t* lock)
    int pthread_mutex_unlock(pthread_mutex_t* lock)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* lock)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_NONBLOCK, EFD_CLOEXEC
cdef extern from "unistd.h" nogil:
    ssize_t read(int fd, void* data, size_t size)
    ssize_t write(int fd, const void* data, size_t size)
cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC


cdef enum:
    SLOW_NS = 1000000           # a write that takes longer had to wait for the disk
    SLOW_FOR_NS = 100000000


cdef uint64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000 + <uint64_t>now.tv_nsec


cdef void sync_group(DiskQueue* queue, Job* first, Job* end) noexcept nogil:
    """One sync for the jobs from `first` up to `end`, which name the same descriptor."""
    cdef uint64_t started
    cdef int result = queue.failed
    cdef Job* job = first
    if first.sync_fd == NULL:
        return
    if result == 0:
        started = now_ns()
        result = queue.calls.sync(queue.calls.context, first.sync_fd[0])
        queue.sync_ns += now_ns() - started
        queue.syncs += 1
        queue.failed = result
    while job != end:
        if job.result == 0:
            job.result = result
        job = job.next


cdef void run_jobs(DiskQueue* queue, Job* head) noexcept nogil:
    """Run a taken chain; each run of jobs with one sync descriptor gets one sync."""
    cdef Job* job = head
    cdef Job* group = head
    while job != NULL:
        if job.sync_fd != group.sync_fd:
            sync_group(queue, group, job)
            group = job
        job.result = queue.failed
        if job.result == 0:
            job.result = job.run(job, &queue.calls)
            queue.failed = job.result
        job = job.next
    sync_group(queue, group, NULL)


cdef void ring_bell(DiskQueue* queue) noexcept nogil:
    """With the lock held: make the descriptor readable."""
    cdef uint64_t one = 1
    if not queue.rung:
        queue.rung = 1
        write(queue.event_fd, &one, 8)


cdef void add_done(DiskQueue* queue, Job* head, Job* tail) noexcept nogil:
    """With the lock held: append a finished chain to the done list."""
    if queue.done_tail == NULL:
        queue.done_head = head
    else:
        queue.done_tail.next = head
    queue.done_tail = tail


cdef void hand_back(DiskQueue* queue, Job* head, Job* tail) noexcept nogil:
    """With the lock held: they are done, and whoever listens is told."""
    add_done(queue, head, tail)
    ring_bell(queue)


cdef void* thread_main(void* argument) noexcept nogil:
    cdef DiskQueue* queue = <DiskQueue*>argument
    cdef Job* head
    cdef Job* tail
    pthread_mutex_lock(&queue.lock)
    while True:
        while queue.waiting_head == NULL and not queue.stopping:
            queue.busy = 0
            pthread_cond_broadcast(&queue.idle)
            pthread_cond_wait(&queue.wake, &queue.lock)
        if queue.waiting_head == NULL:
            break
        head, tail = queue.waiting_head, queue.waiting_tail
        queue.waiting_head = queue.waiting_tail = NULL
        queue.busy = 1
        pthread_mutex_unlock(&queue.lock)
        run_jobs(queue, head)
        pthread_mutex_lock(&queue.lock)
        hand_back(queue, head, tail)
    queue.busy = 0
    pthread_cond_broadcast(&queue.idle)
    pthread_mutex_unlock(&queue.lock)
    return NULL


cdef class DiskThread:
    """See the module. Close it, or the thread outlives its owner."""

    def __cinit__(self, Files files, bint threaded=True):
        self.files = files
        self.queue.calls = files.calls
        self.threaded = threaded
        self.event_fd = self.queue.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.event_fd < 0:
            raise OSError("no eventfd for the disk thread")
        pthread_mutex_init(&self.queue.lock, NULL)
        pthread_cond_init(&self.queue.wake, NULL)
        pthread_cond_init(&self.queue.idle, NULL)
        if threaded:
            if pthread_create(&self.thread, NULL, thread_main, &self.queue) != 0:
                raise OSError("no thread for the disk")
            self.started = True

    def __dealloc__(self):
        self.close()
        pthread_cond_destroy(&self.queue.wake)
        pthread_cond_destroy(&self.queue.idle)
        pthread_mutex_destroy(&self.queue.lock)

    cpdef void stop(self) noexcept:
        """Finish what is queued and end the thread. Jobs that are done can still be reaped."""
        if not self.started:
            return
        self.started = False
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            self.queue.stopping = 1
            pthread_cond_signal(&self.queue.wake)
            pthread_mutex_unlock(&self.queue.lock)
            pthread_join(self.thread, NULL)

    cpdef void close(self):
        """End the thread and give its descriptor back; nobody may be waiting on it any more."""
        self.stop()
        if self.event_fd >= 0:
            os.close(self.event_fd)
            self.event_fd = self.queue.event_fd = -1

    cdef void submit(self, Job* job) noexcept:
        """Queue `job`, which stays the thread's until `reap` gives it back."""
        job.next = NULL
        job.result = 0
        if not self.threaded:
            run_jobs(&self.queue, job)
            hand_back(&self.queue, job, job)
            return
        pthread_mutex_lock(&self.queue.lock)
        if self.queue.waiting_tail == NULL:
            self.queue.waiting_head = job
        else:
            self.queue.waiting_tail.next = job
        self.queue.waiting_tail = job
        if not self.queue.busy:
            pthread_cond_signal(&self.queue.wake)
        pthread_mutex_unlock(&self.queue.lock)

    cdef bint run_here(self, Job* job) noexcept:
        """Run a job that syncs nothing on the owner's thread, if nothing is queued or running; else
        False. Nobody is told that it is done: `reap` finds it, and `ring` tells. When writing takes
        long it is left to the thread for a while."""
        cdef uint64_t started = now_ns()
        cdef bint free
        if not self.threaded or started < self.slow_until_ns:
            return False
        pthread_mutex_lock(&self.queue.lock)
        free = not self.queue.busy and self.queue.waiting_head == NULL
        pthread_mutex_unlock(&self.queue.lock)
        if not free:
            return False
        job.next = NULL
        job.result = 0
        run_jobs(&self.queue, job)
        pthread_mutex_lock(&self.queue.lock)
        add_done(&self.queue, job, job)
        pthread_mutex_unlock(&self.queue.lock)
        if now_ns() - started > SLOW_NS:
            self.slow_until_ns = started + SLOW_FOR_NS
        return True

    cdef Job* reap(self) noexcept:
        """All finished jobs as a chain, in order; NULL: none."""
        cdef Job* head
        cdef uint64_t rung
        pthread_mutex_lock(&self.queue.lock)
        head = self.queue.done_head
        self.queue.done_head = self.queue.done_tail = NULL
        if self.queue.rung:
            self.queue.rung = 0
            read(self.event_fd, &rung, 8)
        pthread_mutex_unlock(&self.queue.lock)
        return head

    cdef void ring(self) noexcept:
        """Make the descriptor readable: whoever listens to it has something to look at."""
        pthread_mutex_lock(&self.queue.lock)
        ring_bell(&self.queue)
        pthread_mutex_unlock(&self.queue.lock)

    def wake(self) -> None:
        """`ring`, for other threads of Python."""
        self.ring()

    cdef void wait_idle(self) noexcept:
        """Block until nothing is queued or running. Not for the loop's thread in normal service."""
        if not self.threaded:
            return
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            while self.queue.busy or self.queue.waiting_head != NULL:
                pthread_cond_wait(&self.queue.idle, &self.queue.lock)
            pthread_mutex_unlock(&self.queue.lock)

    @property
    def failed_errno(self) -> int:
        """0, or the errno that took this thread down."""
        return -self.queue.failed

    @property
    def sync_count(self) -> int:
        return self.queue.syncs

    @property
    def sync_seconds(self) -> float:
        return self.queue.sync_ns / 1e9
