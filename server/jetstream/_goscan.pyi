class Scanner:
    """Walks the values of a text."""

    def __init__(self, data: bytes) -> None: ...
    def value(self, at: int) -> int:
        """Where the value ends that begins at or behind `at`; JsonError with the first mistake."""

def skip_blanks(data: bytes, at: int) -> int: ...
def scan(data: bytes) -> list[tuple[int, int]]:
    """Start and end of each value; JsonError with the first mistake."""
