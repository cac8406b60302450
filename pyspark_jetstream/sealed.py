"""What was compressed or encrypted (storage/FORMAT.md, sections 7 and 8)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_jetstream.errors import JetStreamError, NotUsable, install

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

KEY_VARIABLE = "MARTLET_ENCRYPTION_KEY"
KEY_ADVICE = (
    f"give option encryptionKeyFile, a file with the server's key, or set {KEY_VARIABLE} "
    "where the query is planned"
)
CHACHA, AES = 1, 2
NONCE_BYTES = 12
CODECS = {1: "zstd", 2: "snappy", 3: "lz4_raw"}


class WrongKey(NotUsable):
    """Something encrypted does not open."""


class NotDecompressed(JetStreamError):
    """What is compressed does not unpack."""


def decompress(codec: int, content: bytes, size: int, name: str) -> bytes:
    if codec == 0:
        return content
    if codec not in CODECS:
        raise NotUsable(f"{name} is compressed with codec {codec}, which this does not know")
    import pyarrow

    try:
        found = pyarrow.decompress(content, size, codec=CODECS[codec], asbytes=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise NotDecompressed(f"{CODECS[codec]} says {error}") from error
    assert isinstance(found, bytes)
    return found


def cipher_of(cipher: int, key: bytes, name: str) -> AESGCM | ChaCha20Poly1305:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
    except ImportError:
        raise NotUsable(f"{name} is encrypted: to read it, {install('encryption')}") from None
    if cipher == CHACHA:
        return ChaCha20Poly1305(key[:32])
    if cipher == AES:
        return AESGCM(key[32:])
    raise NotUsable(f"{name} is encrypted with cipher {cipher}, which this does not know")


def open_sealed(cipher: int, key: bytes, content: bytes, with_data: bytes, name: str) -> bytes:
    """Decrypt `nonce, ciphertext, tag`."""
    from cryptography.exceptions import InvalidTag

    opener = cipher_of(cipher, key, name)
    try:
        return opener.decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], with_data)
    except InvalidTag:
        raise WrongKey(f"{name} does not open with this key: {KEY_ADVICE}") from None


def server_key(key_file: str | None) -> str | None:
    """The text of the server's key, from a file or the environment; None: there is none."""
    if key_file:
        try:
            return Path(key_file).read_text().strip()
        except OSError as error:
            raise NotUsable(f"encryptionKeyFile {key_file}: {error.strerror}") from error
    return os.environ.get(KEY_VARIABLE)


def master_key(text: str, identity: bytes) -> bytes:
    return hashlib.scrypt(
        text.encode(), salt=identity, n=16384, r=8, p=1, maxmem=64 << 20, dklen=64
    )
