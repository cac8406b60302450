class Attention:
    """Whether the loop looks for input again at once, instead of sleeping until some comes."""

    def heard(self, cid: int, answered: bool, now_ns: int) -> None:
        """At the end of a turn that read from one connection, or from several (0)."""
    def worked(self, spent_ns: int) -> None:
        """At the end of any turn with work in it, before `heard`."""
    def lasts(self, now_ns: int) -> bool:
        """Whether to look again at once."""
