"""What went wrong, in words for a terminal: errors of ours, of the system, of the libraries."""

from __future__ import annotations

import re

from pyspark_jetstream.errors import JetStreamError, install

LIBRARIES = (
    "_internal",  # deltalake's own
    "deltalake",
    "obstore",
    "py4j",
    "pyarrow",
    "pyiceberg",
    "pyspark",
    "sqlalchemy",
)
OURS = re.compile(r"pyspark_jetstream\.errors\.\w+: (.*)")
# What libraries say behind their own words: where they were, and what they had in hand.
DEBUG = re.compile(r"\n\nDebug source:|\n\s*(?:JVM stacktrace:|at [\w.$]+\(|Traceback )|; line \d")


def words_of(error: Exception) -> str | None:
    """None: it is a fault of ours, and its traceback is wanted."""
    words = raw_words_of(error)
    return None if words is None else DEBUG.split(words)[0].strip() or type(error).__name__


def is_ours(error: Exception) -> bool:
    """A refusal of this package, also one that came through Spark: trying again is no help."""
    return isinstance(error, JetStreamError | ModuleNotFoundError) or bool(OURS.search(str(error)))


def raw_words_of(error: Exception) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        spark = (error.name or "").partition(".")[0] in ("pyspark", "py4j")
        return f"{error}: {install('spark' if spark else 'analytics')}"
    if isinstance(error, JetStreamError):
        return str(error)
    ours = OURS.findall(str(error))  # from a worker of Spark's, with its traceback
    if ours:
        return str(ours[-1])
    if type(error).__module__.partition(".")[0] in LIBRARIES:
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return None
