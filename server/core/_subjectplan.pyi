from server.core.transform import SubjectTransform

class SubjectPlan:
    """A transform ready for the data path."""

    transform: SubjectTransform
    def __init__(self, transform: SubjectTransform) -> None: ...
    def mapped(self, subject: bytes) -> bytes | None:
        """What becomes of the subject; None when it does not match."""
