"""The log of a start: how far it is, once a second."""

from server.jetstream.recoverylog import DAMAGE_TOLD_MAX, RecoveryLog

SECOND_NS = 1_000_000_000


class SteppingClock:
    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns


def test_how_far_a_start_is_is_told_once_a_second() -> None:
    clock = SteppingClock()
    notices: list[str] = []
    log = RecoveryLog(clock, notices.append, notices.append)
    log.loaded(0, 0, 5000)
    for done in range(1, 5001):
        clock.now_ns += SECOND_NS // 2000
        log.loaded(done, done, 5000)
    assert notices == ["  Restored 2,000 of 5,000 streams", "  Restored 4,000 of 5,000 streams"]


def test_of_much_damage_a_part_is_told() -> None:
    warnings: list[str] = []
    log = RecoveryLog(SteppingClock(), warnings.append, warnings.append)
    log.finish([], [f"place {number}" for number in range(DAMAGE_TOLD_MAX + 1500)])
    assert warnings[0] == "  place 0"
    assert len(warnings) == DAMAGE_TOLD_MAX + 1
    assert warnings[-1] == "  and 1,500 places more"
