"""Nothing for Python: `_index` calls it at C level."""
