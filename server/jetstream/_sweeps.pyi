from server.jetstream._hub import ConsumerHub

class Sweep:
    """Work over many messages, in slices."""

    hub: ConsumerHub
    armed_ns: int | None
    is_over: bool
    def tick(self, now_ns: int) -> None:
        """The next slice."""
