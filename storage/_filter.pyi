from collections.abc import Iterable

class SubjectFilter:
    """One or several filters over the subjects of one store; C-level callers ask it."""

    filters: tuple[bytes, ...]
    matched_count: int
    def __init__(self, index: object, filters: Iterable[bytes]) -> None: ...
