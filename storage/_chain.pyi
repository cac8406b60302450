"""Whether a file is the block that the table means; nothing here is for Python."""
