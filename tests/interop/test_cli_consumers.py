"""The `nats` command on consumers, key-value buckets and object stores, as operators use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_cli_streams import Run, make_orders, run, start

__all__ = ["run", "start"]
pytestmark = pytest.mark.interop


@pytest.mark.feature("1.045", "1.049", "1.050", "1.051", "1.052", "1.054", "5.007", "5.012")
def test_a_consumer_is_made_read_changed_paused_and_removed(run: Run) -> None:
    make_orders(run)
    run("consumer", "add", "ORDERS", "worker", "--pull", "--ack", "explicit", "--defaults")
    assert "worker" in run("consumer", "ls", "ORDERS")
    got = run("consumer", "next", "ORDERS", "worker", "--count", "3", "--ack")
    assert [f"message {n}" in got for n in (1, 2, 3)] == [True] * 3, got
    edited = run("consumer", "edit", "ORDERS", "worker", "--max-pending", "5", "--force")
    assert "out of maximum 5" in edited
    info = run("consumer", "info", "ORDERS", "worker")
    assert "Unprocessed Messages: 52" in info
    assert "Acknowledgment Floor: Consumer sequence: 3 Stream sequence: 3" in info
    assert "worker" in run("consumer", "report", "ORDERS")
    assert "Paused ORDERS > worker" in run("consumer", "pause", "ORDERS", "worker", "1h", "--force")
    assert "was resumed" in run("consumer", "resume", "ORDERS", "worker", "--force")
    run("consumer", "copy", "ORDERS", "worker", "second", "--pull")
    run("consumer", "rm", "ORDERS", "worker", "--force")
    assert "worker" not in run("consumer", "ls", "ORDERS")


@pytest.mark.feature("1.055", "5.069", "5.072", "5.073")
def test_a_pinned_client_is_unpinned(run: Run) -> None:
    make_orders(run)
    group = ("--pinned-groups", "g", "--pinned-ttl", "1m")
    run("consumer", "add", "ORDERS", "pinned", "--pull", "--defaults", *group)
    none = run("consumer", "unpin", "ORDERS", "pinned", "g", "--force", code=1)
    assert "no priority groups have pinned clients" in none
    body = '{"batch":1,"group":"g","no_wait":true}'
    run("request", "$JS.API.CONSUMER.MSG.NEXT.ORDERS.pinned", body)
    assert "g" in run("consumer", "unpin", "ORDERS", "pinned", "g", "--force")


@pytest.mark.feature("6.001", "6.004", "6.005", "6.006", "6.007", "6.009", "6.014")
def test_a_bucket(run: Run) -> None:
    run("kv", "add", "B", "--history", "3")
    run("kv", "put", "B", "a", "one")
    run("kv", "put", "B", "a", "two")
    assert run("kv", "get", "B", "a", "--raw") == "two"
    run("kv", "create", "B", "b", "x")
    run("kv", "create", "B", "b", "x", code=1)
    run("kv", "update", "B", "b", "y", "3")
    run("kv", "update", "B", "b", "z", "3", code=1)
    history = run("kv", "history", "B", "a")
    assert "one" in history
    assert "two" in history
    assert run("kv", "ls", "B").split() == ["a", "b"]
    assert "B" in run("kv", "ls")
    run("kv", "del", "B", "b", "--force")
    run("kv", "purge", "B", "a", "--force")
    run("kv", "compact", "B", "--force")
    assert "KV_B" in run("kv", "info", "B")
    run("kv", "del", "B", "--force")


@pytest.mark.feature("6.016", "6.017", "6.018")
def test_an_object_store(run: Run, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1200
    (tmp_path / "in").write_bytes(data)
    run("object", "add", "O")
    put = ("object", "put", "O", str(tmp_path / "in"), "--name", "f", "--force", "--no-progress")
    assert "Chunks: 3" in run(*put)
    assert "f" in run("object", "ls", "O")
    out = tmp_path / "out"
    run("object", "get", "O", "f", "--output", str(out), "--force", "--no-progress")
    assert out.read_bytes() == data
    run("object", "del", "O", "f", "--force")
    run("object", "seal", "O", "--force")
    run(*put, code=1)
    run("object", "del", "O", "--force")
