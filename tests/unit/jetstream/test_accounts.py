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


@pytest.mark.feature("3-088", "8.014")
def test_a_restore_ends_with_its_accounts_jetstream() -> None:
    accounts = (AccountOptions(name="$G", jetstream=AccountJetStreamOptions()),)
    world = EngineWorld(Options(accounts=accounts))
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    subject = world.ask("STREAM.RESTORE.S", {"config": config})["deliver_subject"]
    world.engine.apply(Options(accounts=(AccountOptions(name="$G"),)))
    assert world.engine.restores.running == set()
    assert "restore for stream '$G > S': its account has no JetStream now" in world.warnings
    world.client.say(b"PUB %b r.1 0\r\n\r\n" % subject.encode())
    world.run()
    assert b"MSG r.1" not in world.client.take()
    assert world.engine.accounts == {}
