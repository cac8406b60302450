"""Plain-Python twins of compiled modules: slow, short and obviously right."""
