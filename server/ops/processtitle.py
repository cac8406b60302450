"""Hides secret arguments from whoever lists the machine's processes."""

from __future__ import annotations

import os
from collections.abc import Sequence

# Fields of /proc/self/stat behind the command's name, counted from 0: arg_start and arg_end.
ARG_START_FIELD = 45
ARG_END_FIELD = 46


def replace_arguments(old: Sequence[str], new: Sequence[str]) -> None:
    """Writes `new` over `old`, the last arguments of this process, in the memory that the kernel
    shows as its command line. What is longer than the old ones is cut. Does nothing if the
    arguments are not where they are expected."""
    before = joined(old)
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[ARG_START_FIELD]), int(fields[ARG_END_FIELD])
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.pread(memory, len(before), end - len(before)) == before and end > start:
            after = joined(new)[: len(before) - 1].ljust(len(before), b"\0")
            os.pwrite(memory, after, end - len(before))
    finally:
        os.close(memory)


def joined(arguments: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)
