def read(block: bytes) -> tuple[dict[str, bytes | None], bool]:
    """For tests: the fields, None where one is not there, and whether the block is unusual."""
