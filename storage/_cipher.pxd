# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._record cimport Record

cdef enum:
    CIPHER_NONE = 0
    CIPHER_CHACHA = 1
    CIPHER_AES = 2
    NONCE_SIZE = 12
    TAG_SIZE = 16
    CIPHER_ROOM = 28        # what an encrypted piece is longer than its plaintext
    KEY_SIZE = 64


cdef class StreamKey:
    cdef unsigned char key[64]
    cdef readonly int cipher        # of what is encrypted from now on
    cdef unsigned char nonce[12]
    cdef uint64_t nonces_left
    cdef int take_nonce(self, unsigned char* out) except -1


cdef int encrypt(const unsigned char* key, int cipher, const unsigned char* nonce, const char* context,
                 size_t context_size, const char* plain, size_t size, char* out) noexcept nogil
cdef int decrypt(const unsigned char* key, int cipher, const char* context, size_t context_size,
                 const char* stored, size_t stored_size, char* out) noexcept nogil
cdef int encrypt_record(char* out, const Record* record, uint64_t salt, StreamKey key) except -1
cdef int decrypt_record(const char* at, const unsigned char* key, char* out) noexcept nogil
