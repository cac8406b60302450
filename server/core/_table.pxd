"""The keyed byte hash and the open-addressing table of _table.h."""

from libc.stdint cimport uint64_t


cdef extern from "_table.h" nogil:
    ctypedef struct HashSeed:
        uint64_t one
        uint64_t two

    ctypedef struct Slot:
        uint64_t hash
        void* item

    ctypedef struct Table:
        Slot* slots
        size_t mask
        size_t count

    HashSeed hash_seed(uint64_t secret)
    uint64_t hash_fold(uint64_t a, uint64_t b)
    uint64_t hash_bytes(const char* at, size_t length, HashSeed seed)
    int table_put(Table* table, uint64_t hash, void* item)
    Slot* table_first(const Table* table, uint64_t hash)
    Slot* table_next(const Table* table, Slot* slot)
    void table_drop(Table* table, Slot* slot)
    void table_free(Table* table)
