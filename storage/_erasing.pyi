"""Nothing for Python: a recovery calls it at C level."""
