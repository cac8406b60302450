"""Nothing for Python: `_directory` calls it at C level."""
