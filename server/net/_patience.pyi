class Patience:
    """Whether input may gather for a moment before the loop takes it."""

    def turned(self, now_ns: int, told: bool, kept_up: bool) -> None:
        """At the end of a turn with input: whether something was written since the one before."""
    def waits(self, now_ns: int) -> bool:
        """Whether the input that is there may wait for more."""
