"""Nothing for Python: `_spans` and `_snapshot` call it at C level."""
