"""Input without an end: the server says so, closes, and has not kept it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.server import RawClient, ServerProcess

GIB = 1 << 30
BLOCK_BYTES = 1 << 20
GROWTH_KIB_MAX = 16 * 1024


def resident_kib(server: ServerProcess) -> int:
    """The most that it ever had."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def pour(client: RawClient, block: bytes, total: int) -> int:
    """Sends until the server hangs up; how much it took."""
    sent = 0
    try:
        while sent < total:
            client.send(block)
            sent += len(block)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


@pytest.mark.feature("1-050")
@pytest.mark.parametrize("begin", [b"", b"PUB ", b"CONNECT {", b"SUB a"])
def test_a_gibibyte_without_the_end_of_a_line(tmp_path: Path, begin: bytes) -> None:
    with ServerProcess(tmp_path) as server, server.connect() as client:
        client.handshake()
        before = resident_kib(server)
        client.send(begin)
        assert pour(client, b"x" * BLOCK_BYTES, GIB) < GIB
        server.wait_log("maximum control line exceeded|Client parser ERROR")
        assert resident_kib(server) - before < GROWTH_KIB_MAX
        with server.connect() as other:
            other.handshake()


@pytest.mark.feature("1-050")
def test_whoever_reads_is_told_what_was_wrong(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, server.connect() as client:
        client.handshake()
        client.send(b"PUB " + b"x" * 5000)
        client.expect("-ERR 'maximum control line exceeded'")
        assert client.line() == ""
