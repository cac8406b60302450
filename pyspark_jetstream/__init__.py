"""Reads a Martlet data directory or its archive from outside: for Spark, Parquet and reports.

`spark.read.format("jetstream").load(DIR)` finds `DefaultSource` here by the module's name. Nothing
in this package imports the server: an executor needs this package and pyarrow, and obstore for
archives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_jetstream import packed

if TYPE_CHECKING:
    from pyspark_jetstream.source import DefaultSource

__all__ = ["DefaultSource"]

packed.install(__spec__.loader if __spec__ is not None else None)
packed.check_compiled()


def __getattr__(name: str) -> Any:
    # Spark is imported only by those who ask for its source: exports and reports do without.
    if name == "DefaultSource":
        from pyspark_jetstream.source import DefaultSource

        return DefaultSource
    raise AttributeError(name)
