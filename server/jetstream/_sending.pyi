"""Nothing for Python: the hub calls it for each consumer."""
