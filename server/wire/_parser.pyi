class Recorder:
    """A parser with a list for a connection: tests and fuzzing."""

    events: list[tuple[object, ...]]
    rest: bytes
    stopped: bool
    def __init__(
        self, max_control_line: int = 4096, headers: bool = True, awaiting_auth: bool = False
    ) -> None: ...
    def feed(self, data: bytes) -> None: ...
