def names_a_trace(block: bytes, parents: bool) -> bool:
    """For tests: whether a header block may ask for a trace."""
