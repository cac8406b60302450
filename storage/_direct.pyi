"""Jobs of the log's thread; nothing here is for Python."""
