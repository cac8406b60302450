"""Runs libFuzzer over `target.run`: python -m tests.fuzz LIBRARY [libFuzzer arguments].

`make fuzz` builds the extensions with clang's coverage and the address sanitizer, preloads both
runtimes and calls this. LIBRARY is libFuzzer as a shared library.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback

from tests.fuzz.target import run

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t)


@CALLBACK
def one_input(data: ctypes._Pointer[ctypes.c_uint8], size: int) -> int:
    """A broken invariant ends the process, so that libFuzzer keeps the input."""
    try:
        run(ctypes.string_at(data, size))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os.abort()
    return 0


def main(library: str, arguments: list[str]) -> int:
    words = [b"martlet-fuzz", *(argument.encode() for argument in arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    driver = ctypes.PyDLL(library).LLVMFuzzerRunDriver
    count = ctypes.c_int(len(words))
    status: int = driver(
        ctypes.byref(count), ctypes.byref(ctypes.cast(argv, ctypes.POINTER(ctypes.c_char_p))),
        one_input,
    )  # fmt: skip
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
