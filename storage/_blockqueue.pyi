"""Durable batches on their way to the blocks; nothing here is for Python."""
