class SpanIndex:
    """For C alone."""

    live: int
