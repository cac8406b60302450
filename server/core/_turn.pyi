from collections.abc import Callable

class Phase:
    """A dirty mark with a callable; `mark` makes it run at the end of this turn."""

    def mark(self) -> None: ...

class Turn:
    """Collects what a round of reads dirtied and finishes it in a fixed order.

    `call_soon` (an event loop's) is asked once when work appears outside a running turn.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object] | None = None) -> None: ...
    def set_call_soon(self, call_soon: Callable[[Callable[[], None]], object] | None) -> None: ...
    def phase(self, order: int, run: Callable[[], None]) -> Phase:
        """Register a phase: 2 inboxes, 3 raft, 4 disk, 5 consumers (ARCHITECTURE, "The turn")."""
    def forget(self, phase: Phase) -> None:
        """It runs no more."""
    @property
    def has_loop(self) -> bool: ...
    def later(self, callback: Callable[[], None]) -> None:
        """Call back when the loop has looked at its sockets again; there must be a loop."""
    def run(self) -> None:
        """End the turn now: dirty phases in order, then every dirty outbox once."""
