"""The generator counts right: every message that a broker loses, repeats or changes is noticed."""

import json
import re
import subprocess

import pytest

from bench.loads import LOADGEN
from tests.bench.relay import relay

pytestmark = pytest.mark.skipif(not LOADGEN.exists(), reason="run `make loadgen`")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(LOADGEN), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def stream(port: int, *more: object) -> subprocess.CompletedProcess[str]:
    return run("stream", "--port", port, *more)


@pytest.mark.parametrize("size", [1, 16, 8192])
def test_stream_counts_every_message(size):
    with relay("nothing") as broker:
        done = stream(broker.port, "--count", 50, "--size", size)
        assert done.returncode == 0, done.stderr
        numbers = json.loads(done.stdout)
        assert (numbers["sent"], numbers["received"], numbers["expected"]) == (50, 50, 50)
        assert broker.passed == 50


def test_stream_stops_in_time_at_a_whole_message():
    with relay("nothing") as broker:
        done = stream(broker.port, "--seconds", 0.3, "--warmup", 0)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["received"] == broker.passed > 0


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        ("drop", "49 of 50 messages came"),
        ("twice", "51 messages of 50|a message came that nobody waits for"),
        ("alter", "a subscriber expected"),
    ],
)
def test_stream_fails_when_a_message_is_spoilt(spoil, sentence):
    with relay(spoil) as broker:
        done = stream(broker.port, "--count", 50, "--size", 4096, "--stall-ms", 500)
        assert done.returncode == 1
        assert re.search(sentence, done.stderr)
        assert done.stdout == ""


def test_latency_counts_every_answer():
    with relay("nothing") as broker:
        done = run("latency", "--port", broker.port, "--count", 40)
        assert done.returncode == 0, done.stderr
        numbers = json.loads(done.stdout)
        assert numbers["requests"] == numbers["answers"] == 40
        assert 0 < numbers["p50_us"] <= numbers["p99_us"] <= numbers["p999_us"]
        assert broker.passed == 80


def test_latency_fails_on_a_changed_answer():
    with relay("alter") as broker:
        done = run("latency", "--port", broker.port, "--count", 40)
        assert done.returncode == 1
        assert "another payload" in done.stderr


def test_connections_and_subscriptions_are_probed():
    with relay("nothing") as broker:
        done = run("connections", "--port", broker.port, "--count", 30, "--settle", 0)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["count"] == 30
        words = ("--count", 100, "--connections", 2, "--settle", 0)
        done = run("subscriptions", "--port", broker.port, *words)
        assert done.returncode == 0, done.stderr
        assert (len(broker.subscribers), broker.passed) == (100, 50)


def test_only_loopback_is_loaded():
    done = run("stream", "--host", "10.0.0.1", "--port", 4222)
    assert done.returncode == 1
    assert "127.0.0.0/8" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("stream", "--port", 4222, "--seconds", 61), "between 0 and 60"),
        (("stream", "--port", 4222, "--size", "many"), "whole number"),
        (("drizzle", "--port", 4222), "not a load"),
    ],
)
def test_a_wrong_command_line_is_refused(words, sentence):
    done = run(*words)
    assert done.returncode == 1
    assert sentence in done.stderr
