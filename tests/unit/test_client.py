"""What a client may do, hears, and is closed for, over memory and a clock of the test's own."""

from __future__ import annotations

from collections import Counter

import pytest

from server.core._client import Client
from server.core._permissions import Permissions
from tests.unit.memory_client import MODERN, QUIET, SECOND_NS, RecordingHooks, World

PONG = b"PONG\r\n"


class TestDelivery:
    @pytest.mark.feature("1-056")
    def test_headers_are_cut_for_those_without(self) -> None:
        world = World()
        plain, modern = world.client(QUIET), world.client(MODERN)
        plain.say(b"SUB foo 1\r\n")
        modern.say(b"SUB foo 2\r\n")
        said = modern.say(b"HPUB foo r 12 15\r\nNATS/1.0\r\n\r\nabc\r\n")
        assert said == b"HMSG foo 2 r 12 15\r\nNATS/1.0\r\n\r\nabc\r\n"
        assert plain.take() == b"MSG foo 1 r 3\r\nabc\r\n"

    @pytest.mark.feature("1-068", "1-069", "1-073")
    def test_a_queue_group_gets_each_message_once_and_spreads_them(self) -> None:
        world = World()
        members = [world.client(QUIET) for _ in range(4)]
        for number, member in enumerate(members):
            member.say(b"SUB foo.%b q 1\r\n" % (b"*" if number % 2 else b">"))
        plain = world.client(QUIET)
        plain.say(b"SUB foo.* 1\r\n")
        plain.say(b"PUB foo.a 1\r\nx\r\n" * 400)
        counts = [member.server_side.out_msgs for member in members]
        assert sum(counts) == 400
        assert min(counts) > 50
        assert plain.server_side.out_msgs == 400

    @pytest.mark.feature("1-072", "1-069")
    def test_without_echo_the_queue_moves_on_to_another_member(self) -> None:
        world = World()
        silent = world.client(b'CONNECT {"verbose":false,"echo":false}\r\n')
        other = world.client(QUIET)
        silent.say(b"SUB foo q 1\r\n")
        other.say(b"SUB foo q 1\r\n")
        assert silent.say(b"PUB foo 1\r\nx\r\n" * 50) == b""
        assert other.server_side.out_msgs == 50

    @pytest.mark.feature("1-081")
    def test_who_comes_later_hears_nothing_of_before(self) -> None:
        world = World()
        writer, late = world.client(QUIET), world.client(QUIET)
        writer.say(b"PUB foo 1\r\nx\r\n")
        assert late.say(b"SUB foo 1\r\nPING\r\n") == PONG

    @pytest.mark.feature("1-080", "1-067")
    def test_order_is_kept_through_every_size(self) -> None:
        world = World()
        reader, writer = world.client(QUIET), world.client(QUIET)
        reader.say(b"SUB foo 1\r\n")
        expected = b""
        for size in (0, 1, 100, 3000, 3071, 3072, 5000, 70_000, 10, 200_000, 2):
            body = bytes([97 + size % 26]) * size
            writer.say(b"PUB foo %d\r\n%b\r\n" % (size, body))
            expected += b"MSG foo 1 %d\r\n%b\r\n" % (size, body)
        assert reader.take() == expected

    def test_a_payload_in_small_pieces_is_delivered_whole(self) -> None:
        world = World()
        peer = world.client(QUIET)
        peer.say(b"SUB foo 1\r\n")
        message = b"PUB foo 100000\r\n" + b"z" * 100_000 + b"\r\nPING\r\n"
        said = b"".join(peer.say(message[at : at + 999]) for at in range(0, len(message), 999))
        assert said == b"MSG foo 1 100000\r\n" + b"z" * 100_000 + b"\r\nPONG\r\n"

    def test_a_closed_client_leaves_nothing_behind(self) -> None:
        world = World()
        gone, other = world.client(QUIET), world.client(QUIET)
        gone.say(b"SUB foo 1\r\nSUB foo q 2\r\n")
        assert world.broker.default_account.subscriptions == 2
        gone.server_side.close("Kicked")
        assert gone.transport_closed
        assert world.broker.default_account.subscriptions == 0
        assert other.say(b"PUB foo 1\r\nx\r\nPING\r\n") == PONG
        assert gone.take() == b""
        assert list(world.broker.clients) == [other.server_side.cid]


class TestAccounts:
    def test_messages_stay_in_their_account(self) -> None:
        world = World()
        here, there = world.client(QUIET), world.client(QUIET)
        there.server_side.accept(world.broker.account("B"), "user")
        here.say(b"SUB > 1\r\n")
        assert there.say(b"SUB > 1\r\nPUB foo 1\r\nx\r\n") == b"MSG foo 1 1\r\nx\r\n"
        assert here.take() == b""
        assert (world.broker.account("B").in_msgs, world.broker.account("B").out_msgs) == (1, 1)

    def test_the_server_publishes_and_subscribes(self) -> None:
        world = World()
        account = world.broker.default_account
        peer = world.client(MODERN)
        peer.say(b"SUB news 1\r\n")
        heard: list[tuple[object, ...]] = []
        sub = account.subscribe("in.*", lambda *message: heard.append(message))
        assert account.publish("news", "r", b"NATS/1.0\r\n\r\n", b"hi") == 1
        assert account.publish("nobody") == 0
        world.broker.turn.run()
        assert peer.take() == b"HMSG news 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
        peer.say(b"HPUB in.a re 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPUB in.b 0\r\n\r\n")
        assert heard == [
            ("in.a", "re", b"NATS/1.0\r\n\r\n", b"abc", "in.*"),
            ("in.b", "", b"", b"", "in.*"),
        ]
        sub.unsubscribe()
        sub.unsubscribe()
        assert not account.has_interest("in.a")

    def test_a_callback_may_answer_within_the_same_turn(self) -> None:
        world = World()
        account = world.broker.default_account
        account.subscribe(
            "echo", lambda s, reply, h, payload, sub: account.publish(reply, "", b"", payload)
        )
        peer = world.client(QUIET)
        assert peer.say(b"SUB r 1\r\nPUB echo r 2\r\nhi\r\n") == b"MSG r 1 2\r\nhi\r\n"

    @pytest.mark.feature("1-093")
    def test_the_connection_limit_of_an_account(self) -> None:
        world = World()
        account = world.broker.account("A")
        account.max_connections = 1
        first, second = world.client(), world.client()
        assert first.server_side.accept(account)
        assert not second.server_side.accept(account)
        assert second.take() == b"-ERR 'maximum account active connections exceeded'\r\n"
        assert second.reason == "Maximum Account Connections Exceeded"


class TestLimits:
    @pytest.mark.feature("1-077")
    def test_max_subs_refuses_and_stays(self) -> None:
        world = World()
        world.broker.max_subs = 2
        peer = world.client(QUIET)
        said = peer.say(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPING\r\n")
        assert said == b"-ERR 'maximum subscriptions exceeded'\r\nPONG\r\n"
        assert peer.server_side.subscription_count == 2

    @pytest.mark.feature("1-078")
    def test_a_lowered_limit_closes_the_surplus(self) -> None:
        world = World()
        peer = world.client(QUIET)
        peer.say(b"SUB a 1\r\nSUB b 2\r\n")
        world.broker.max_subs = 1
        world.broker.apply_limits()
        world.broker.turn.run()
        assert peer.take() == b"-ERR 'maximum subscriptions exceeded'\r\n"
        assert peer.reason == "Maximum Subscriptions Exceeded"

    @pytest.mark.feature("1-079")
    def test_max_sub_tokens(self) -> None:
        world = World()
        world.broker.max_sub_tokens = 2
        peer = world.client(QUIET)
        said = peer.say(b"SUB a.b 1\r\nSUB a.b.c 2\r\nPING\r\n")
        text = b'Permissions Violation for Subscription to "a.b.c", too many tokens'
        assert said == b"-ERR '" + text + b"'\r\nPONG\r\n"

    @pytest.mark.feature("1-092")
    def test_one_connection_too_many_hears_info_and_why(self) -> None:
        world = World()
        world.broker.max_connections = 1
        world.client(QUIET)
        second = world.client()
        assert second.info.startswith(b"INFO {")
        assert second.info.endswith(b"\r\n-ERR 'maximum connections exceeded'\r\n")
        assert second.reason == "Maximum Connections Exceeded"

    @pytest.mark.feature("1-092")
    def test_zero_connections_refuse_everybody(self) -> None:
        world = World()
        world.broker.max_connections = 0
        assert world.client().reason == "Maximum Connections Exceeded"

    @pytest.mark.feature("1-059")
    def test_headers_turned_off(self) -> None:
        world = World()
        world.broker.headers = False
        peer = world.client()
        assert b'"headers":false' in peer.info
        peer.say(b'CONNECT {"verbose":false,"headers":true}\r\nHPUB a 0 0\r\n\r\n')
        assert peer.reason == "Protocol Violation"


class TestLiveness:
    @pytest.mark.feature("1-083", "1-085")
    def test_the_first_ping_comes_soon_after_connect(self) -> None:
        world = World()
        peer = world.client(QUIET)
        assert peer.server_side.rtt_ns > 0
        world.pass_time(1.9)
        assert peer.take() == b""
        world.pass_time(0.8)
        assert peer.take() == b"PING\r\n"
        world.now_ns += 5_000_000
        peer.say(b"PONG\r\n")
        assert 5_000_000 <= peer.server_side.rtt_ns < SECOND_NS

    @pytest.mark.feature("1-084")
    def test_no_ping_while_data_comes_except_once_an_hour(self) -> None:
        world = World()
        world.broker.ping_interval_ns = 10 * SECOND_NS
        peer = world.client(QUIET)
        world.pass_time(3)
        assert peer.take() == b"PING\r\n"
        peer.say(b"PONG\r\n")
        for _ in range(20):
            world.pass_time(5)
            peer.say(b"PUB a 1\r\nx\r\n")
        assert peer.take() == b""
        for _ in range(700):
            world.pass_time(5.1)
            peer.say(b"PUB a 1\r\nx\r\nPONG\r\n")
        assert peer.server_side.reason == ""

    @pytest.mark.feature("1-082", "5-024")
    def test_unanswered_pings_end_in_stale(self) -> None:
        world = World()
        world.broker.ping_interval_ns = 10 * SECOND_NS
        peer = world.client(QUIET)
        world.pass_time(21)
        assert peer.take() == b"PING\r\nPING\r\n"
        world.pass_time(2)
        assert peer.take() == b"-ERR 'Stale Connection'\r\n"
        assert peer.reason == "Stale Connection"
        assert world.broker.stale_connections == 1

    @pytest.mark.feature("1-036")
    def test_no_connect_in_time(self) -> None:
        world = World()
        world.broker.auth_required = True
        peer = world.client()
        assert b'"auth_required":true' in peer.info
        world.pass_time(1.9)
        assert not peer.transport_closed
        world.pass_time(0.3)
        assert peer.take() == b"-ERR 'Authentication Timeout'\r\n"
        assert peer.reason == "Authentication Timeout"

    @pytest.mark.feature("1-036")
    def test_without_authentication_there_is_no_such_timer(self) -> None:
        world = World()
        peer = world.client()
        world.pass_time(30)
        assert not peer.transport_closed


class LaterHooks(RecordingHooks):
    """Decides when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Client] = []
        self.no_auth_user = False

    def on_connect(self, client: Client) -> None:
        self.waiting.append(client)

    def on_missing_connect(self, client: Client) -> bool:
        if self.no_auth_user:
            client.accept(client.broker.account("N"), "nobody")
        return self.no_auth_user

    def on_first_pong(self, client: Client) -> bytes | None:
        return b'{"connect_info":true}'


class TestAuthentication:
    def world(self) -> tuple[World, LaterHooks]:
        hooks = LaterHooks()
        world = World(hooks)
        world.broker.auth_required = True
        return world, hooks

    @pytest.mark.feature("1-033")
    def test_the_first_verb_must_be_connect(self) -> None:
        world, _ = self.world()
        peer = world.client()
        assert peer.say(b"PING\r\n") == b"-ERR 'Authorization Violation'\r\n"
        assert peer.reason == "Authentication Failure"

    @pytest.mark.feature("1-033")
    def test_no_auth_user_signs_in_on_the_spot(self) -> None:
        world, hooks = self.world()
        hooks.no_auth_user = True
        peer = world.client()
        assert peer.say(b"PING\r\n") == PONG
        assert peer.server_side.account is world.broker.account("N")

    def test_nothing_is_parsed_until_the_decision(self) -> None:
        world, hooks = self.world()
        peer = world.client()
        assert peer.say(MODERN + b"SUB a 1\r\nPUB a 1\r\nx\r\nPI") == b""
        assert peer.paused
        assert peer.say(b"NG\r\n") == b""
        hooks.waiting.pop().accept(world.broker.account("A"), "joe")
        world.broker.turn.run()
        assert peer.take() == b'MSG a 1 1\r\nx\r\nPONG\r\nINFO {"connect_info":true} \r\n'
        assert not peer.paused
        assert peer.server_side.label == '127.0.0.1:4000 - cid:1 - "A/joe"'

    @pytest.mark.feature("1-035")
    def test_a_rejected_client_hears_why_and_is_closed(self) -> None:
        world, hooks = self.world()
        peer = world.client()
        peer.say(QUIET + b"PING\r\n")
        hooks.waiting.pop().reject()
        assert peer.take() == b"-ERR 'Authorization Violation'\r\n"
        assert hooks.closed == [(1, "Authentication Failure")]

    def test_a_client_that_leaves_while_being_decided_about(self) -> None:
        world, hooks = self.world()
        peer = world.client()
        peer.say(QUIET)
        peer.server_side.peer_closed()
        assert not hooks.waiting.pop().accept(world.broker.account("A"))
        assert world.broker.account("A").connections == 0

    @pytest.mark.feature("1-015")
    def test_the_second_info_follows_the_first_pong_only(self) -> None:
        world, hooks = self.world()
        peer = world.client()
        peer.say(MODERN)
        hooks.waiting.pop().accept(world.broker.default_account)
        assert peer.say(b"PING\r\nPING\r\n") == PONG + b'INFO {"connect_info":true} \r\n' + PONG
        old = world.client()
        old.say(QUIET)
        hooks.waiting.pop().accept(world.broker.default_account)
        assert old.say(b"PING\r\n") == PONG


class TestPermissions:
    def client_with(self, **lists: object) -> tuple[World, object]:
        world = World()
        peer = world.client(QUIET)
        peer.server_side.accept(world.broker.default_account, "u", Permissions(**lists))  # type: ignore[arg-type]
        return world, peer

    @pytest.mark.feature("4-017", "4-018", "1-099")
    def test_publish_lists(self) -> None:
        _, peer = self.client_with(pub_allow=["a.>", "b"], pub_deny=["a.secret.*"])
        for subject, allowed in [("a.x", True), ("b", True), ("b.x", False), ("a.secret.x", False)]:
            said = peer.say(b"PUB %b 1\r\nx\r\nPING\r\n" % subject.encode())
            error = f"-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n".encode()
            assert said == (PONG if allowed else error + PONG)

    @pytest.mark.feature("4-017", "4-018", "4-021")
    def test_subscribe_lists_with_queues(self) -> None:
        rules = Permissions(sub_allow=["foo", "bar v1.*", "bar prod"], sub_deny=["foo q2"])
        assert rules.may_subscribe("foo")
        assert rules.may_subscribe("foo", "q1")
        assert not rules.may_subscribe("foo", "q2")
        assert not rules.may_subscribe("bar")
        assert rules.may_subscribe("bar", "v1.x")
        assert rules.may_subscribe("bar", "prod")
        assert not rules.may_subscribe("bar", "dev")
        assert not rules.may_subscribe("foo.bar")

    @pytest.mark.feature("4-022")
    def test_a_deny_inside_a_wildcard_is_filtered_at_delivery(self) -> None:
        _, peer = self.client_with(sub_deny=["foo.secret"])
        said = peer.say(b"SUB foo.* 1\r\nPUB foo.secret 1\r\nx\r\nPUB foo.open 1\r\ny\r\n")
        assert said == b"MSG foo.open 1 1\r\ny\r\n"

    @pytest.mark.feature("4-023")
    def test_replies_are_allowed_so_often_and_so_long(self) -> None:
        world, server = self.client_with(
            pub_allow=["own"], responses_max=2, responses_expires_ns=SECOND_NS
        )
        asker = world.client(QUIET)
        server.say(b"SUB svc 1\r\n")
        answer = b"PUB inbox 1\r\nx\r\n"
        refused = b"-ERR 'Permissions Violation for Publish to \"inbox\"'\r\n"
        assert server.say(answer) == refused
        asker.say(b"PUB svc inbox 0\r\n\r\n")
        server.take()
        assert server.say(answer * 3) == refused
        asker.say(b"PUB svc inbox 0\r\n\r\n")
        server.take()
        world.now_ns += 2 * SECOND_NS
        assert server.say(answer) == refused

    @pytest.mark.feature("1-100")
    def test_a_reload_takes_subscriptions_away(self) -> None:
        _, peer = self.client_with()
        peer.say(b"SUB foo 1\r\nSUB bar 2\r\n")
        peer.server_side.set_permissions(Permissions(sub_allow=["foo"]))
        peer.world.broker.turn.run()
        error = b'-ERR \'Permissions Violation for Subscription to "bar" (sid "2")\'\r\n'
        assert peer.take() == error
        assert [sub.subject for sub in peer.server_side.subscriptions()] == ["foo"]

    def test_a_repeated_publish_is_asked_again_after_a_change(self) -> None:
        _, peer = self.client_with(pub_allow=["a"])
        line = b"PUB a 1\r\nx\r\n"
        assert peer.say(line * 3) == b""
        peer.server_side.set_permissions(Permissions(pub_allow=[]))
        assert peer.say(line).startswith(b"-ERR 'Permissions Violation")


class TestSlowConsumers:
    def pair(self, max_pending: int) -> tuple[World, object, object]:
        world = World()
        world.broker.max_pending = max_pending
        reader, writer = world.client(QUIET), world.client(QUIET)
        reader.say(b"SUB foo 1\r\n")
        return world, reader, writer

    @pytest.mark.feature("1-087", "1-090", "1-101", "5-024")
    def test_beyond_max_pending_the_consumer_is_closed_silently(self) -> None:
        world, reader, writer = self.pair(100_000)
        reader.held = 99_999
        writer.say(b"PUB foo 100\r\n" + b"x" * 100 + b"\r\n")
        reader.held = 100_001
        writer.say(b"PUB foo 70000\r\n" + b"x" * 70_000 + b"\r\n")
        assert reader.reason == "Slow Consumer (Pending Bytes)"
        assert world.broker.slow_consumers_pending == 1
        text = "Slow Consumer Detected: MaxPending of 100000 Exceeded"
        assert ("info", text) in world.hooks.lines
        writer.say(b"PING\r\n")
        world.pass_time(0.1)
        assert writer.take() == PONG

    @pytest.mark.feature("1-088", "1-090", "5-024")
    def test_a_write_that_never_ends_meets_its_deadline(self) -> None:
        world, reader, writer = self.pair(1 << 20)
        reader.held = 1000
        writer.say(b"PUB foo 1\r\nx\r\n")
        world.pass_time(9.5)
        assert not reader.transport_closed
        world.pass_time(1)
        assert reader.reason == "Slow Consumer (Write Deadline)"
        assert world.broker.slow_consumers_deadline == 1

    @pytest.mark.feature("1-088")
    def test_a_busy_consumer_that_keeps_up_lives(self) -> None:
        world, reader, writer = self.pair(1 << 20)
        for _ in range(40):
            reader.held = 1000
            writer.say(b"PUB foo 2000\r\n" + b"x" * 2000 + b"\r\n")
            world.pass_time(1)
        assert not reader.transport_closed

    @pytest.mark.feature("1-089")
    def test_with_retry_a_write_that_moves_gets_more_time(self) -> None:
        world, reader, writer = self.pair(1 << 20)
        world.broker.write_retry = True
        reader.held = 1000
        writer.say(b"PUB foo 1\r\nx\r\n")
        reader.held = 500
        world.pass_time(10.5)
        assert not reader.transport_closed
        assert world.broker.slow_consumers_deadline == 1
        world.pass_time(10.5)
        assert reader.reason == "Slow Consumer (Write Deadline)"
        assert any("Slow Consumer State: " in text for _, text in world.hooks.lines)

    @pytest.mark.feature("1-091")
    def test_a_fast_producer_is_stalled_and_loses_nothing(self) -> None:
        world, reader, writer = self.pair(100_000)
        reader.held = 80_000
        block = b"PUB foo 1000\r\n" + b"x" * 1000 + b"\r\n"
        writer.server_side.feed(block * 70)
        world.broker.turn.run()
        writer.server_side.feed(b"PING\r\n")
        world.broker.turn.run()
        assert writer.paused
        assert writer.take() == b""
        assert world.broker.stalls == 1
        reader.held = 0
        world.pass_time(0.2)
        assert not writer.paused
        assert writer.take() == PONG

    @pytest.mark.feature("1-091")
    def test_or_the_message_is_dropped_for_that_consumer(self) -> None:
        world, reader, writer = self.pair(100_000)
        world.broker.no_fast_producer_stall = True
        reader.held = 80_000
        block = b"PUB foo 1000\r\n" + b"x" * 1000 + b"\r\n"
        assert writer.say(block * 100 + b"PING\r\n") == PONG
        assert 55 < reader.server_side.out_msgs < 65
        assert not reader.transport_closed


class TestTrace:
    @pytest.mark.feature("2-044")
    def test_what_is_traced(self) -> None:
        world = World()
        world.broker.trace = True
        peer = world.client()
        peer.say(b'CONNECT {"verbose":false,"pass":"x","jwt":"eyJ0.e30.c2ln"}\r\nPING\r\n')
        peer.say(b"SUB foo 1\r\nPUB foo 2\r\nhi\r\nUNSUB 1\r\nSUB bar 2\r\n")
        peer.server_side.close("Client Closed")
        traced = [text for level, text in world.hooks.lines if level == "trace"]
        assert traced == [
            '<<- [CONNECT {"verbose":false,"pass":"[REDACTED]","jwt":"[REDACTED]"}]',
            "<<- [PING]",
            "->> [PONG]",
            "<<- [SUB foo 1]",
            "<<- [PUB foo 2]",
            '<<- MSG_PAYLOAD: ["hi"]',
            "->> [MSG foo 1 2]",
            '->> MSG_PAYLOAD: ["hi"]',
            "<<- [UNSUB 1]",
            "<-> [DELSUB 1]",
            "<<- [SUB bar 2]",
            "<-> [DELSUB 2]",
        ]


def test_the_client_counts() -> None:
    here = World()
    peer = here.client(QUIET)
    peer.say(b"SUB foo 1\r\nSUB foo 2\r\nPUB foo 5\r\nhello\r\n")
    side = peer.server_side
    assert (side.in_msgs, side.in_bytes, side.out_msgs, side.out_bytes) == (1, 5, 2, 10)
    broker = here.broker
    assert (broker.in_msgs, broker.in_bytes, broker.out_msgs, broker.out_bytes) == (1, 5, 2, 10)
    assert Counter(sub.delivered for sub in side.subscriptions()) == Counter([1, 1])


@pytest.mark.parametrize(
    ("failing", "sent"),
    [
        ("_client.sub_violation", b"SUB ok _sys_ 1\r\n"),
        ("_peer.is_json_object", b"INFO {}\r\n"),
        ("_session.decode_connect", b"CONNECT {}\r\n"),
        ("_client.quote", b"NONSENSE\r\n"),
        ("_client.quote", b"PUB _GR_.a 1\r\nx\r\n"),
    ],
)
def test_a_failure_of_ours_closes_that_client_alone(
    failing: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError("a mistake of ours")

    world = World()
    client, other = world.client(MODERN), world.client(MODERN)
    monkeypatch.setattr(f"server.core.{failing}", fail)
    client.say(sent)
    assert client.transport_closed
    assert isinstance(world.hooks, RecordingHooks)
    assert world.hooks.closed == [(1, "Internal Client")]
    assert ("error", "Internal error: RuntimeError('a mistake of ours')") in world.hooks.lines
    assert PONG in other.say(b"PING\r\n")
