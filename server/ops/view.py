"""What the monitoring pages may see of the server. `server.app` satisfies it by shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from config.options import Options
    from server.clock import Random
    from server.core._broker import Broker
    from server.ops.closed import ClosedConnections


class JetStreamView(Protocol):
    """The numbers and names of JetStream; the dictionaries are parts of pages."""

    def stats(self) -> dict[str, Any]: ...
    def config(self) -> dict[str, Any]: ...
    def limits(self) -> dict[str, Any]: ...
    def totals(self) -> dict[str, int]: ...
    def account_names(self) -> list[str]: ...
    def account_detail(
        self,
        name: str,
        with_streams: bool,
        with_config: bool,
        with_consumers: bool,
        with_direct_consumers: bool,
    ) -> dict[str, Any] | None: ...
    def stream_names(self, account: str) -> set[str] | None:
        """None when the account has no JetStream."""

    def consumer_names(self, account: str, stream: str) -> set[str]: ...


class ServerView(Protocol):
    broker: Broker
    random: Random
    options: Options
    closed: ClosedConnections

    server_id: str
    server_name: str
    version: str  # the reference's version that clients may rely on
    martlet_version: str
    runtime: str  # what runs us, such as `python3.11`; stands where the reference tells its Go
    port: int  # the real client port
    http_port: int  # the real ones, 0 when off
    https_port: int
    connect_urls: Sequence[str]

    start_wall_ns: int
    config_loaded_wall_ns: int

    @property
    def jetstream(self) -> JetStreamView | None:
        """None when it is off."""

    @property
    def tls_not_after(self) -> str:
        """When the client listener's certificate ends; empty without TLS."""

    @property
    def listening(self) -> bool:
        """Whether new clients are accepted."""

    def health_errors(self) -> Sequence[Mapping[str, str]]:
        """What is wrong with JetStream: `type` (JETSTREAM or STREAM), `error` and where."""

    def wall_ns(self) -> int: ...
