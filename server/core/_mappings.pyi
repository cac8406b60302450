from collections.abc import Callable, Mapping, Sequence

class Mappings:
    """The subject mappings of one account; `random_below` is for destinations with `random`."""

    described: dict[str, list[dict[str, str | int]]]
    """By source, as monitoring shows them: the weights are summed up, the rarest first."""
    def __init__(self, random_below: Callable[[int], int] | None) -> None: ...
    def add(self, source: str, by_cluster: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """`by_cluster`: the destinations (subject, percent) for each cluster, "" for all others."""
    def mapped(self, subject: bytes, random: int = 1) -> bytes | None:
        """Where it goes, b"" for nowhere; None: no mapping is for it."""
