"""The keys of `jetstream {}`: which values both servers take, and what their limits refuse."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.differential.jetstream.cases import create
from tests.differential.jetstream.consumer_cases import durable
from tests.differential.jetstream.play import Ask
from tests.differential.jetstream.test_settings import compare, servers
from tests.e2e.server import MARTLET, NATS_SERVER

TAKEN = (
    "strict: true",
    "sync_interval: always",
    "sync_interval: 10s",
    "key: abcdefgh",
    "ek: abcdefgh",
    "encryption_key: abcdefgh, prev_key: other, cipher: aes",
    "extension_hint: will_extend",
    "limits { max_ack_pending: 10, max_ha_assets: 3, max_request_batch: 100 }",
    'limits { duplicate_window: "60s" }',
    "limits { batch { max_inflight_per_stream: 5, max_inflight_total: 10 } }",
    'limits { batch { max_msgs: 100, timeout: "5s" } }',
    "unique_tag: az",
    "max_outstanding_catchup: 10MB",
    "max_buffered_size: 1MB, max_buffered_msgs: 1000",
    "request_queue_limit: 100, info_queue_limit: 50",
    "request_queue_limit: -1",
    "meta_compact: 100, meta_compact_size: 1MB, meta_compact_sync: true",
    "max_concurrent_io: 4",
    "max_concurrent_io: 8192",
)
REFUSED = (
    "strict: 3",
    "sync_interval: x",
    "cipher: rot13",
    "limits { max_ack_pending: x }",
    "limits { batch { timeout: x } }",
    "limits { nonsense: 1 }",
    "max_outstanding_catchup: x",
    "info_queue_limit: x",
    "meta_compact: -1",
    "meta_compact_sync: 3",
    "max_concurrent_io: 3",
    "max_concurrent_io: 8193",
    "nonsense: 1",
)
LIMITS = "jetstream { limits { max_ack_pending: 10, max_request_batch: 5 }, STORE }"
pytestmark = pytest.mark.peer


@pytest.mark.feature("9.002")
@pytest.mark.parametrize("settings", [*TAKEN, *REFUSED])
def test_what_is_taken(tmp_path: Path, settings: str) -> None:
    file = tmp_path / "server.conf"
    file.write_text(f'jetstream {{ store_dir: "{tmp_path}", {settings} }}')
    for command in (NATS_SERVER, MARTLET):
        done = subprocess.run([command, "-t", "-c", file], capture_output=True, timeout=30)
        assert (done.returncode == 0) == (settings in TAKEN), done.stderr


@pytest.mark.feature("9.002")
def test_limits_of_the_server(tmp_path: Path) -> None:
    with servers(tmp_path, LIMITS) as pair:
        bodies: list[dict[str, object]] = [
            {},
            {"max_ack_pending": 10},
            {"max_ack_pending": 11},
            {"max_ack_pending": -1},
            {"max_batch": 5},
            {"max_batch": 6},
        ]
        for body in bodies:
            steps = [create(), durable("A", **{"ack_policy": "explicit"} | body)]
            compare(pair, [*steps, Ask("CONSUMER.INFO.S.A")])
