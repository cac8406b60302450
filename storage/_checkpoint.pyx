# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The checkpoint of a stream: its table, dead bits and index snapshot as bytes (FORMAT.md, 6)."""
import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, strdup

from storage._block cimport BLOCK_ROW_SIZE, JOB_CHECKPOINT, Block, run_checkpoint, store_row
from storage._blocktable cimport dead_bytes, new_job
from storage._codec cimport store16, store32, store64, xxh64


cdef BlockJob* checkpoint_job(BlockHome home, uint64_t segment, bint clean) except NULL:
    """What is true now, to be queued behind the batch that has just been closed."""
    cdef BlockJob* job = new_job(JOB_CHECKPOINT, home)
    cdef bytes state = encode_state(home, clean)
    job.job.run = run_checkpoint
    job.index = home.log_group.index
    job.segment = segment
    job.at = home.active.number if home.active != NULL else home.next_number
    if home.active != NULL:
        job.file = home.active.file
    Py_INCREF(state)
    job.keep = <PyObject*>state
    job.data = PyBytes_AS_STRING(state)
    job.size = len(state)
    job.directory = strdup(os.fsencode(home.path))
    home.checkpoint_running = True
    home.checkpoint_wanted = False
    return job


def state_context(group: int, index: int) -> bytes:
    """What an encrypted index snapshot is bound to."""
    return b"MARTSTA1" + group.to_bytes(8, "little") + index.to_bytes(8, "little")


cdef bytes encode_state(BlockHome home, bint clean):
    """The bytes of state.a and state.b (FORMAT.md, section 6)."""
    cdef bytearray out = bytearray(STATE_HEAD + home.block_count * BLOCK_ROW_SIZE)
    cdef char* at = out
    cdef size_t index
    cdef Block* block
    snapshot = home.snapshot_source(clean) if home.snapshot_source is not None else None
    if snapshot is not None and home.key is not None:
        snapshot = home.key.encrypt(snapshot, state_context(home.group, home.log_group.index))
    memcpy(at, b"MARTSTA1", 8)
    store16(at + 8, 2 if home.key is not None else 1)
    store64(at + 16, home.group)
    store64(at + 24, home.log_group.index)
    store64(at + 32, home.floor)
    store64(at + 40, home.last_seq)
    store64(at + 48, home.next_number)
    store64(at + 56, home.last_checksum)
    store32(at + 64, <uint32_t>home.block_count)
    store32(at + 68, clean)
    store64(at + 72, len(snapshot) if snapshot is not None else 0)
    store64(at + 80, home.active.number if home.active != NULL else 0)
    store32(at + 88, <uint32_t>len(home.lost))
    store32(at + 92, snapshot is not None)
    store32(at + 96, home.key.cipher if home.key is not None else 0)
    for index in range(home.block_count):
        store_row(at + STATE_HEAD + index * BLOCK_ROW_SIZE, home.blocks[index])
    for index in range(home.block_count):
        block = home.blocks[index]
        if block.dead_bits != NULL and block.dead:
            out += dead_bytes(block)
    for first, last in home.lost:
        out += first.to_bytes(8, "little") + last.to_bytes(8, "little")
    if snapshot is not None:
        out += snapshot
    out += xxh64(out, len(out), home.salt).to_bytes(8, "little")
    return bytes(out)
