class ExpiryWheel:
    """For C alone."""

    count: int
