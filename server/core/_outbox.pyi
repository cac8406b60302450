def live_buffers() -> tuple[int, int]:
    """(blocks in use, chunks alive): both zero when no connection has output."""
