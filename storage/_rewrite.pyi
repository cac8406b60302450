class Rewrite:
    number: int
    spoiled: bool
    done: bool
    problem: str | None
    damaged: bool
    def spoil(self) -> None: ...
    def run(self) -> None: ...
