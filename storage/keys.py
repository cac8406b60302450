"""The server's key; how streams' keys and the server's own files are encrypted (FORMAT.md, 8)."""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from functools import lru_cache

from storage._cipher import CIPHERS, StreamKey, aes_available

MASTER_KEY_SIZE = 64
WRAPPED_KEY_SIZE = MASTER_KEY_SIZE + 28


class KeyProblem(Exception):
    """Nothing can be encrypted with what the configuration gives."""


@lru_cache(maxsize=16)
def master_key(text: str, identity: bytes) -> bytes:
    """Slow on purpose (about 50 ms): a guess at a weak key costs as much."""
    return hashlib.scrypt(
        text.encode(), salt=identity, n=16384, r=8, p=1, maxmem=64 << 20, dklen=MASTER_KEY_SIZE
    )


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """What the configuration says about encryption."""

    key: str = field(repr=False)
    previous: str = field(default="", repr=False)
    cipher: str = "chacha"
    convert: bool = True
    """Encrypt plain streams that are found and change to `cipher`; False: leave each as it is."""

    def __post_init__(self) -> None:
        if self.cipher not in CIPHERS:
            raise KeyProblem(f'cipher "{self.cipher}" is not one of {", ".join(CIPHERS)}')
        if self.cipher == "aes" and not aes_available():
            raise KeyProblem("cipher aes needs a processor with AES instructions; use chacha")


class DirectoryKeys:
    """The keys of one data directory: what `ServerKeys` come to with its identity."""

    def __init__(self, keys: ServerKeys, identity: bytes) -> None:
        self.cipher = CIPHERS[keys.cipher]
        self.convert = keys.convert
        self._current = StreamKey(master_key(keys.key, identity), self.cipher)
        self._previous = (
            StreamKey(master_key(keys.previous, identity), self.cipher) if keys.previous else None
        )

    def new_key(self) -> bytes:
        return os.urandom(MASTER_KEY_SIZE)

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        return self._current.encrypt(plain, context)

    def decrypt(self, cipher: int, stored: bytes, context: bytes) -> tuple[bytes, bool] | None:
        """The plaintext and whether it is due for the current key; None: no key fits."""
        plain = self._current.decrypt(cipher, stored, context)
        if plain is not None:
            return plain, self.convert and cipher != self.cipher
        if self._previous is not None:
            plain = self._previous.decrypt(cipher, stored, context)
        return None if plain is None else (plain, True)


class FileCipher:
    """Encrypts the server's own small files and journal lines; `None` keys: leaves them plain."""

    def __init__(self, keys: DirectoryKeys | None, name: str) -> None:
        self._keys = keys
        self._context = name.encode()

    def pack(self, plain: bytes) -> bytes:
        """One line without its end. It starts with the cipher's number, plain JSON never does."""
        if self._keys is None:
            return plain
        stored = self._keys.encrypt(plain, self._context)
        return b"%d" % self._keys.cipher + b64encode(stored)

    def unpack(self, line: bytes) -> bytes | None:
        """None: no key opens it."""
        if line[:1] not in (b"1", b"2"):
            return line
        if self._keys is None:
            return None
        found = self._keys.decrypt(int(line[:1]), b64decode(line[1:]), self._context)
        return None if found is None else found[0]
