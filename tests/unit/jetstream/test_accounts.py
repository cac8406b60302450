"""Accounts that come and go with reloads."""

from __future__ import annotations

import pytest

from config.options import AccountJetStreamOptions, AccountOptions, Options
from tests.unit.jetstream.engine_world import EngineWorld


@pytest.mark.feature("3-088")
def test_the_disks_trouble_with_one_account_does_not_stop_a_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EngineWorld()

    def recover(account: str) -> tuple[()]:
        if account == "A":
            raise OSError("the disk is gone")
        return ()

    monkeypatch.setattr(world.engine.stores, "recover_account", recover)
    accounts = tuple(
        AccountOptions(name=name, jetstream=AccountJetStreamOptions()) for name in ("A", "B")
    )
    world.engine.apply(Options(accounts=accounts))
    assert set(world.engine.accounts) == {"A", "B"}
    assert world.warnings == ["Streams of account 'A' are kept but not served: the disk is gone"]
