"""Accounts as the broker keeps them."""

from __future__ import annotations

import gc

import pytest

from server.core._account import Account
from server.core._broker import Broker


def accounts_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Account) for each in gc.get_objects())


@pytest.mark.feature("3-088")
def test_nothing_is_left_of_a_forgotten_account() -> None:
    broker, heard = Broker(), list[str]()
    before = accounts_alive()
    for _ in range(5):
        account = broker.account("A")
        account.subscribe("foo", lambda subject, *more: heard.append(subject))
        account.publish("foo")
        broker.forget_account("A")
        broker.turn.run()
        assert account.subscriptions == 0
        assert account.publish("foo") == 0
    del account
    assert heard == []
    assert accounts_alive() == before
    broker.account("A").subscribe("foo", lambda subject, *more: heard.append(subject))
    broker.account("A").publish("foo")
    broker.turn.run()
    assert heard == ["foo"]


@pytest.mark.feature("3-088")
def test_an_account_may_be_made_and_forgotten_within_a_turn() -> None:
    broker, heard = Broker(), list[str]()

    def change(subject: str, *more: object) -> None:
        broker.forget_account("B")
        broker.account("C").subscribe("later", lambda subject, *rest: heard.append(subject))
        broker.account("C").publish("later")

    broker.account("B")
    broker.account("A").subscribe("now", change)
    broker.account("A").publish("now")
    broker.turn.run()
    assert heard == ["later"]
