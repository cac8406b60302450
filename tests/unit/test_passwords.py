"""Password checks and the pool that makes the slow ones."""

from __future__ import annotations

import queue
from collections.abc import Callable

import bcrypt
import pytest

from server.auth.passwords import PasswordPool, bcrypt_equal, is_bcrypt, plain_equal

HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


class FakeLoop:
    """Runs what the pool's threads hand over, when the test says so."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[..., object], tuple[object, ...]]] = queue.Queue()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object:
        self._calls.put((callback, args))
        return None

    def run_one(self) -> None:
        callback, args = self._calls.get(timeout=30)
        callback(*args)


@pytest.mark.feature("4-003")
@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2x$", "$2y$"])
def test_every_bcrypt_prefix_is_known(prefix: str) -> None:
    hashed = prefix + HASHED[4:]
    assert is_bcrypt(hashed)
    assert bcrypt_equal(hashed, "secret")
    assert not bcrypt_equal(hashed, "Secret")


@pytest.mark.parametrize("text", ["", "secret", "$2a$", "$2a$11$short", "$1a$" + "x" * 56])
def test_other_texts_are_plain(text: str) -> None:
    assert not is_bcrypt(text)


def test_a_password_longer_than_bcrypt_reads_does_not_fail() -> None:
    assert not bcrypt_equal(HASHED, "x" * 200)
    assert not bcrypt_equal(HASHED, "secret\0")


def test_plain_passwords_are_compared_whole() -> None:
    assert plain_equal("pässword", "pässword")
    assert not plain_equal("password", "passwor")


def test_answers_come_on_the_loop() -> None:
    loop, answers = FakeLoop(), list[bool]()
    pool = PasswordPool(loop, waiting_max=10, workers=1)
    assert pool.check(HASHED, "secret", lambda: True, answers.append)
    assert pool.check(HASHED, "wrong", lambda: True, answers.append)
    assert answers == []
    loop.run_one()
    loop.run_one()
    assert answers == [True, False]
    pool.close()


def test_a_full_line_refuses() -> None:
    loop, answers = FakeLoop(), list[bool]()
    pool = PasswordPool(loop, waiting_max=2, workers=1)
    taken = [pool.check(HASHED, "secret", lambda: True, answers.append) for _ in range(5)]
    assert taken == [True, True, True, False, False]
    for _ in range(3):
        loop.run_one()
    assert answers == [True, True, True]
    pool.close()


def test_who_has_gone_costs_no_check() -> None:
    loop, answers = FakeLoop(), list[str]()
    pool = PasswordPool(loop, waiting_max=10, workers=1)
    pool.check(HASHED, "secret", lambda: True, lambda _: answers.append("first"))
    pool.check(HASHED, "secret", lambda: False, lambda _: answers.append("gone"))
    pool.check(HASHED, "secret", lambda: True, lambda _: answers.append("third"))
    loop.run_one()
    loop.run_one()
    assert answers == ["first", "third"]
    pool.close()
