class Rewrite:
    number: int
    spoiled: bool
    done: bool
    problem: str | None
    def spoil(self) -> None: ...
    def run(self) -> None: ...
