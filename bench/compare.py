"""Best of several rounds, Martlet and the peer in turn, so that both meet the same noise."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.loads import Numbers, Scale
from bench.programs import BenchError, Program
from bench.rows import Better, Measurement, Row

CPU_KEYS = ("server_cpu_ns_per_message", "server_cpu_ns_each")


@dataclass(frozen=True)
class Outcome:
    """All rounds of one program under one measurement; else why it was skipped or failed."""

    rounds: tuple[Numbers, ...] = ()
    skipped: str | None = None
    failed: str | None = None

    def values(self, key: str) -> list[float]:
        return [numbers[key] for numbers in self.rounds if key in numbers]

    def best(self, key: str, better: Better) -> float | None:
        values = self.values(key)
        if not values:
            return None
        return max(values) if better is Better.HIGHER else min(values)


@dataclass(frozen=True)
class Result:
    row: Row
    martlet: Outcome
    peer: Outcome

    def ratio(self) -> float | None:
        martlet = self.martlet.best(self.row.key, self.row.better)
        peer = self.peer.best(self.row.key, self.row.better)
        return martlet / peer if martlet is not None and peer else None

    def passed(self) -> bool | None:
        """None: there is no goal, or a server was skipped."""
        if self.martlet.failed:
            return False
        martlet = self.martlet.best(self.row.key, self.row.better)
        if self.row.goal is None or martlet is None:
            return None
        return self.row.goal.met(self.row.better, martlet, self.ratio())


def cpu_ns(outcome: Outcome) -> float | None:
    for key in CPU_KEYS:
        best = outcome.best(key, Better.LOWER)
        if best is not None:
            return best
    return None


def measure(
    measurement: Measurement, programs: Sequence[Program], scale: Scale, rounds: int
) -> dict[str, Outcome]:
    """A program that is missing or fails once is left out of the further rounds."""
    rounds_of: dict[str, list[Numbers]] = {program.name: [] for program in programs}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        for program in programs:
            if program.missing() or program.name in failed:
                continue
            tell(f"{measurement.name}: {program.name}, round {turn + 1} of {rounds}")
            try:
                rounds_of[program.name].append(measurement.run(program, scale))
            except (BenchError, OSError, subprocess.TimeoutExpired) as error:
                failed[program.name] = str(error)
                tell(f"{measurement.name}: {program.name} failed: {error}")
    return {
        program.name: Outcome(
            () if program.name in failed else tuple(rounds_of[program.name]),
            program.missing(),
            failed.get(program.name),
        )
        for program in programs
    }


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
