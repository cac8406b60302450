"""Nothing for Python: `_spans` calls it at C level."""
