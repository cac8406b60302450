from collections.abc import Callable

from server.core._account import Account
from server.core._client import Client
from server.core._turn import Turn
from server.core.hooks import Hooks
from server.core.msgtrace import MessageTrace

class Broker:
    """The state that all connections of one server share. Every attribute may be set at runtime
    (reload); what is derived per connection (payload and subscription limits) is refreshed by
    `apply_limits`.

    `clock_ns` is a monotonic clock, `wall_ns` the time of day; both are arguments for tests.
    `seed` feeds the member choice of queue groups and keys the hashes of subjects.
    """

    def __init__(
        self,
        hooks: Hooks | None = None,
        clock_ns: Callable[[], int] | None = None,
        wall_ns: Callable[[], int] | None = None,
        seed: int | None = None,
    ) -> None: ...
    hooks: Hooks
    turn: Turn
    default_account: Account  # $G
    system_account: Account  # $SYS
    accounts: dict[str, Account]
    clients: dict[int, Client]  # by cid, live ones, in the order of their arrival

    random: int  # the state of queue choices and jitter, never 0; a replay sets it

    tracing: MessageTrace | None  # of the message that is being published

    # limits
    max_control_line: int
    max_payload: int
    max_pending: int
    max_subs: int  # per connection, 0: no limit
    max_sub_tokens: int  # 0: no limit
    max_connections: int
    ping_interval_ns: int
    ping_max: int
    first_ping_ns: int  # 2 s, plus up to 20 % jitter
    write_deadline_ns: int
    auth_timeout_ns: int
    headers: bool
    sublist_cache: bool
    no_fast_producer_stall: bool
    write_retry: bool  # write_timeout: a late write that moved bytes gets another deadline
    auth_required: bool  # what new clients start with
    trace: bool  # what new clients start with
    trace_headers_only: bool
    max_traced_msg_len: int  # 0: no limit
    lame_duck: bool

    # counters, readable and writable
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    total_connections: int
    slow_consumers_pending: int
    slow_consumers_deadline: int
    stale_connections: int
    stalls: int

    def account(self, name: str) -> Account:
        """The account of that name, made when it does not exist."""
    def forget_account(self, name: str) -> None:
        """It hears nothing any more; the next one of that name begins anew."""
    def wall_ns(self) -> int:
        """The time of day."""
    def chance(self) -> float:
        """From 0 up to 1, at random."""
    def now_ns(self) -> int:
        """The monotonic time the current turn sees."""
    def info_json(self, client: Client) -> bytes:
        """A minimal INFO (tests and benches; the server's own comes from its hooks)."""
    def tick(self, now_ns: int) -> None:
        """Move the timer wheel: pings, stale, auth timeout, write deadlines, ends of stalls.

        Call every 50 to 100 ms with a monotonic time; costs nothing per idle connection. The
        poller does not call it.
        """
    def apply_limits(self) -> None:
        """Push changed limits to live clients (and close what exceeds max_subs, 1-078)."""
    def close_all(self, reason: str = "Server Shutdown") -> None: ...
