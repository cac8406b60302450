"""The base of BlockHome; nothing here is for Python."""
