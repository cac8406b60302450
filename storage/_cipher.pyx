# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Authenticated encryption of what goes to the disk (FORMAT.md, section 8).

Contract: `encrypt` and `decrypt` need no GIL and no memory of their own; `decrypt` shows nothing
unless the tag fits. A key belongs to one stream, and no nonce is used twice under it: eight random
bytes drawn when the stream is opened, then a counter.

The functions are libsodium's, as PyNaCl ships it: their addresses are taken from its module, because a
call for each record through Python objects costs five times what the encryption does.
"""
import os

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

import nacl.bindings                # starts libsodium
from nacl import _sodium

from storage._codec cimport (
    KIND_MESSAGE, RECORD_FIXED, RECORD_HEAD, encoded_size, load16, load32, store16, store32, store64, xxh64)

ctypedef int (*SodiumEncrypt)(
    unsigned char* out, unsigned long long* out_size, const unsigned char* plain, unsigned long long size,
    const unsigned char* context, unsigned long long context_size, const unsigned char* unused,
    const unsigned char* nonce, const unsigned char* key) noexcept nogil
ctypedef int (*SodiumDecrypt)(
    unsigned char* out, unsigned long long* out_size, unsigned char* unused, const unsigned char* stored,
    unsigned long long size, const unsigned char* context, unsigned long long context_size,
    const unsigned char* nonce, const unsigned char* key) noexcept nogil

CIPHERS = {"chacha": CIPHER_CHACHA, "aes": CIPHER_AES}


cdef uintptr_t address_of(str name) except 0:
    return <uintptr_t>int(_sodium.ffi.cast("uintptr_t", _sodium.ffi.addressof(_sodium.lib, name)))


cdef SodiumEncrypt encrypt_chacha = <SodiumEncrypt>address_of("crypto_aead_chacha20poly1305_ietf_encrypt")
cdef SodiumDecrypt decrypt_chacha = <SodiumDecrypt>address_of("crypto_aead_chacha20poly1305_ietf_decrypt")
cdef SodiumEncrypt encrypt_aes = <SodiumEncrypt>address_of("crypto_aead_aes256gcm_encrypt")
cdef SodiumDecrypt decrypt_aes = <SodiumDecrypt>address_of("crypto_aead_aes256gcm_decrypt")
cdef bint has_aes = _sodium.lib.crypto_aead_aes256gcm_is_available() == 1


def aes_available() -> bool:
    """Whether this processor has the instructions that AES-GCM is done with here."""
    return has_aes


cdef int encrypt(const unsigned char* key, int cipher, const unsigned char* nonce, const char* context,
                 size_t context_size, const char* plain, size_t size, char* out) noexcept nogil:
    """Write nonce, ciphertext and tag: `size` + CIPHER_ROOM bytes. `plain` may be `out` + NONCE_SIZE."""
    cdef unsigned char* target = <unsigned char*>out + NONCE_SIZE
    memcpy(out, nonce, NONCE_SIZE)
    if cipher == CIPHER_CHACHA:
        return encrypt_chacha(target, NULL, <const unsigned char*>plain, size, <const unsigned char*>context,
                              context_size, NULL, nonce, key)
    if cipher == CIPHER_AES and has_aes:
        return encrypt_aes(target, NULL, <const unsigned char*>plain, size, <const unsigned char*>context,
                           context_size, NULL, nonce, key + 32)
    return -1


cdef int decrypt(const unsigned char* key, int cipher, const char* context, size_t context_size,
                 const char* stored, size_t stored_size, char* out) noexcept nogil:
    """Write `stored_size` - CIPHER_ROOM bytes to `out`; -1: key, context or bytes are not the right ones."""
    cdef const unsigned char* nonce = <const unsigned char*>stored
    if stored_size < CIPHER_ROOM:
        return -1
    if cipher == CIPHER_CHACHA:
        return decrypt_chacha(<unsigned char*>out, NULL, NULL, nonce + NONCE_SIZE, stored_size - NONCE_SIZE,
                              <const unsigned char*>context, context_size, nonce, key)
    if cipher == CIPHER_AES and has_aes:
        return decrypt_aes(<unsigned char*>out, NULL, NULL, nonce + NONCE_SIZE, stored_size - NONCE_SIZE,
                           <const unsigned char*>context, context_size, nonce, key + 32)
    return -1


cdef class StreamKey:
    """One stream's key in memory."""

    def __init__(self, bytes key not None, int cipher):
        if len(key) != KEY_SIZE or cipher not in (CIPHER_CHACHA, CIPHER_AES):
            raise ValueError("not a stream key")
        memcpy(self.key, <const char*>key, KEY_SIZE)
        self.cipher = cipher

    cdef int take_nonce(self, unsigned char* out) except -1:
        cdef uint32_t count
        cdef bytes drawn
        if self.nonces_left == 0:
            drawn = os.urandom(8)
            memcpy(self.nonce, <const char*>drawn, 8)
            self.nonces_left = <uint64_t>1 << 32
        count = <uint32_t>((<uint64_t>1 << 32) - self.nonces_left)
        self.nonces_left -= 1
        memcpy(out, self.nonce, 8)
        memcpy(out + 8, &count, 4)
        return 0

    def encrypt(self, bytes plain not None, bytes context not None) -> bytes:
        """For small things: settings, an index snapshot."""
        cdef bytearray out = bytearray(len(plain) + CIPHER_ROOM)
        cdef unsigned char nonce[12]
        self.take_nonce(nonce)
        if encrypt(self.key, self.cipher, nonce, context, len(context), plain, len(plain), out) != 0:
            raise ValueError("this machine has no instructions for this cipher")
        return bytes(out)

    def decrypt(self, int cipher, bytes stored not None, bytes context not None) -> bytes | None:
        """None: it does not fit this key and `context`."""
        cdef bytearray out = bytearray(max(len(stored) - CIPHER_ROOM, 0))
        if decrypt(self.key, cipher, context, len(context), stored, len(stored), out) != 0:
            return None
        return bytes(out)


cdef int encrypt_record(char* out, const Record* record, uint64_t salt, StreamKey key) except -1:
    """As `encode_record`, for `encoded_size(record)` + CIPHER_ROOM bytes; messages only."""
    cdef uint32_t size = <uint32_t>encoded_size(record) + CIPHER_ROOM
    cdef char* body = out + RECORD_HEAD + NONCE_SIZE
    cdef unsigned char nonce[12]
    store32(out, size)
    out[4] = KIND_MESSAGE
    out[5] = <char>key.cipher
    store16(out + 6, record.subject_len)
    store64(out + 8, record.seq)
    store64(out + 16, <uint64_t>record.ts_ns)
    store32(out + 24, record.hdr_len)
    memcpy(body, record.subject, record.subject_len)
    if record.hdr_len:
        memcpy(body + record.subject_len, record.hdr, record.hdr_len)
    if record.msg_len:
        memcpy(body + record.subject_len + record.hdr_len, record.msg, record.msg_len)
    key.take_nonce(nonce)
    if encrypt(key.key, key.cipher, nonce, out, RECORD_HEAD, body, size - RECORD_FIXED - CIPHER_ROOM,
               out + RECORD_HEAD) != 0:
        raise ValueError("this machine has no instructions for this cipher")
    store64(out + size - 8, xxh64(out, size - 8, salt))
    return 0


cdef int decrypt_record(const char* at, const unsigned char* key, char* out) noexcept nogil:
    """Write the body of the checked record at `at`; -1: it was not encrypted with this key."""
    return decrypt(key, at[5], at, RECORD_HEAD, at + RECORD_HEAD, load32(at) - RECORD_FIXED, out)
