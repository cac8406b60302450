"""Nothing for Python: `_store` calls it at C level."""
