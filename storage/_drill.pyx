# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Drives the storage room from C, as a stream's ingest does: for benchmarks and crash tests only."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memset, strlen

from storage._blockhome cimport BlockHome
from storage._directory cimport DataDirectory
from storage._record cimport Record
from storage._store cimport StreamStore


def append(DataDirectory directory, BlockHome home, uint64_t count, uint64_t batch, uint64_t size,
           uint64_t subjects, StreamStore store=None, uint64_t batches_open_max=16):
    """Append `count` messages of `size` bytes, committing each `batch`; returns when the last is durable.

    At most `batches_open_max` batches are under way, as with a publisher that awaits acks.
    """
    cdef char* names = <char*>malloc(subjects * 32)
    cdef char* message = <char*>malloc(size)
    cdef Record record
    cdef uint64_t done = 0
    cdef uint64_t in_batch = 0
    cdef uint64_t ticket = 0
    cdef uint64_t base = home.last_seq
    memset(message, b"x", size)
    memset(&record, 0, sizeof(Record))
    for done in range(subjects):
        snprintf(names + done * 32, 32, "orders.%llu", <unsigned long long>done)
    done = 0
    record.msg = message
    record.msg_len = <unsigned int>size
    while done < count:
        done += 1
        record.seq = base + done
        record.ts_ns = <int64_t>(base + done)
        record.subject = names + (done % subjects) * 32
        record.subject_len = <unsigned short>strlen(record.subject)
        if store is None:
            home.append(&record)
        else:
            store.store_record(&record, 0)
        in_batch += 1
        if in_batch == batch or done == count:
            in_batch = 0
            ticket = directory.submit()
            directory.reap()
            while ticket - directory.written_ticket > batches_open_max:
                directory.log_disk.wait_idle()
                directory.reap()
    directory.wait(ticket)
    free(message)
    free(names)


def load(BlockHome home, uint64_t count, uint64_t stride):
    """Read `count` messages by sequence, `stride` apart."""
    cdef Record record
    cdef uint64_t index
    cdef uint64_t seq = home.floor
    cdef uint64_t found = 0
    for index in range(count):
        found += home.read(seq, &record)
        seq += stride
        if seq > home.last_seq:
            seq = home.floor + seq - home.last_seq - 1
    if found != count:
        raise ValueError(f"read {found} of {count}")
