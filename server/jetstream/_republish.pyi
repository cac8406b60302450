from server.core.transform import SubjectTransform

class Republisher:
    """What a stream republishes, and under which subjects."""

    headers_only: bool
    def __init__(self, transform: SubjectTransform, stream: str, headers_only: bool) -> None: ...
