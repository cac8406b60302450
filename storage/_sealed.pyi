"""Block jobs; nothing here is for Python."""
