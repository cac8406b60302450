class SubjectIndex:
    """For C alone."""

    subject_count: int
