"""The short hash that the reference makes names with: of servers, accounts, consumers of copies."""

from __future__ import annotations

import hashlib
from typing import Final

HASH_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
HASH_LENGTH: Final = 8


def short_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(HASH_DIGITS[byte % len(HASH_DIGITS)] for byte in digest[:HASH_LENGTH])
