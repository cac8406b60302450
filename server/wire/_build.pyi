def decimal(value: int) -> bytes:
    """For tests."""
