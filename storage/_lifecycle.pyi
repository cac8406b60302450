"""Jobs of the block thread; nothing here is for Python."""
