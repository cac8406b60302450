"""Pull requests: bodies, refusals with their exact texts, the order of the waiting ones."""

import pytest

from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.pull import (
    PullRequest,
    Refused,
    WaitingQueue,
    check,
    parse,
    status,
    waiting_for,
)


@pytest.mark.parametrize(
    ("body", "batch"),
    [(b"", 1), (b"  ", 1), (b"25", 25), (b"x", 1), (b"9" * 5000, 1), (b'{"batch":7}', 7)],
)
def test_pull_body(body: bytes, batch: int) -> None:
    assert parse(body).batch == batch


def test_pull_body_json_fields() -> None:
    found = parse(b'{"batch":2,"expires":5000,"no_wait":true,"max_bytes":9,"id":"p","more":1}')
    assert found == PullRequest(expires=5000, batch=2, max_bytes=9, no_wait=True, id="p")


@pytest.mark.parametrize("body", [b'{"batch":"a"}', b"{batch", b'{"expires":1.5}'])
def test_pull_body_wrong(body: bytes) -> None:
    with pytest.raises(Refused, match=r"^400 Bad Request - ."):
        parse(body)


def test_pull_heartbeat_too_large() -> None:
    with pytest.raises(Refused, match=r"^400 Bad Request - heartbeat value too large$"):
        parse(b'{"expires":100,"idle_heartbeat":51}')


OVERFLOW = ConsumerConfig(priority_policy="overflow", priority_groups=["A"])
PINNED = ConsumerConfig(priority_policy="pinned_client", priority_groups=["A"])


@pytest.mark.parametrize(
    ("config", "request_", "why"),
    [
        (ConsumerConfig(deliver_subject="d"), PullRequest(), "409 Consumer is push based"),
        (ConsumerConfig(max_batch=2), PullRequest(batch=3), "409 Exceeded MaxRequestBatch of 2"),
        (
            ConsumerConfig(max_expires=10**9),
            PullRequest(expires=2 * 10**9),
            "409 Exceeded MaxRequestExpires of 1s",
        ),
        (
            ConsumerConfig(max_bytes=5),
            PullRequest(max_bytes=6),
            "409 Exceeded MaxRequestMaxBytes of 5",
        ),
        (
            ConsumerConfig(),
            PullRequest(min_pending=1),
            "400 Bad Request - Not a Overflow Priority consumer",
        ),
        (
            ConsumerConfig(),
            PullRequest(id="x"),
            "400 Bad Request - Not a Pinned Client Priority consumer",
        ),
        (
            ConsumerConfig(),
            PullRequest(priority=10),
            "400 Bad Request - Priority must be between 0 and 9",
        ),
        (OVERFLOW, PullRequest(), "400 Bad Request - Priority Group missing"),
        (OVERFLOW, PullRequest(group="B"), "400 Bad Request - Invalid Priority Group"),
        (PINNED, PullRequest(group="A", id="old"), "423 Nats-Pin-Id mismatch"),
    ],
)
def test_pull_refused(config: ConsumerConfig, request_: PullRequest, why: str) -> None:
    with pytest.raises(Refused) as refused:
        check(request_, config, is_json=True, pinned_id="now")
    assert str(refused.value) == why


def test_pull_limits_are_inclusive() -> None:
    check(PullRequest(batch=2), ConsumerConfig(max_batch=2), is_json=True)


def test_pull_status_bytes() -> None:
    assert status(404, "No Messages") == b"NATS/1.0 404 No Messages\r\n\r\n"
    assert status(408, "Request Timeout", 3, 4) == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 4\r\n\r\n"
    )


def replies(queue: WaitingQueue, count: int) -> list[str]:
    return [queue.take().reply for _ in range(count)]


def test_pull_round_robin_and_bound() -> None:
    queue = WaitingQueue(2)
    queue.add(waiting_for("a", PullRequest(batch=2), 0))
    queue.add(waiting_for("b", PullRequest(batch=1), 0))
    with pytest.raises(Refused, match=r"^409 Exceeded MaxWaiting$"):
        queue.add(waiting_for("c", PullRequest(batch=1), 0))
    assert replies(queue, 3) == ["a", "b", "a"]
    assert queue.head() is None


def test_pull_by_priority() -> None:
    queue = WaitingQueue(9, by_priority=True)
    for reply, priority in (("low", 5), ("a", 1), ("b", 1)):
        queue.add(waiting_for(reply, PullRequest(batch=2, priority=priority), 0))
    assert replies(queue, 6) == ["a", "b", "a", "b", "low", "low"]


def test_pull_body_wrong_type_text() -> None:
    with pytest.raises(Refused) as refused:
        parse(b'{"batch":"a"}')
    assert refused.value.text == (
        "Bad Request - json: cannot unmarshal string into Go struct field .batch of type int"
    )
