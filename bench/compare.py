"""Best of several rounds, Martlet and the peer in turn, so that both meet the same noise."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.loads import Numbers, Scale
from bench.programs import MARTLET, BenchError, Program
from bench.rows import Better, Measurement, Row

NOISE_KEY = "other_cpu_share"
CPU_KEYS = ("server_cpu_ns_per_message", "server_cpu_ns_each")


class Noise:
    """Processor time that neither the servers nor the generator used, since this was made."""

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self.before_s = self._others_s()

    @staticmethod
    def _others_s() -> float:
        words = Path("/proc/stat").read_text().split(maxsplit=4)
        all_s = sum(int(word) for word in words[1:4]) / os.sysconf("SC_CLK_TCK")
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return all_s - sum(usage.ru_utime + usage.ru_stime for usage in ours)

    def share(self) -> float:
        """Of one core. The servers and generators must have ended."""
        return max(0.0, self._others_s() - self.before_s) / (time.monotonic() - self.started_s)


@dataclass(frozen=True)
class Outcome:
    """All rounds of one program under one measurement; else why it was skipped or failed."""

    rounds: tuple[Numbers, ...] = ()
    skipped: str | None = None
    failed: str | None = None

    def values(self, key: str) -> list[float]:
        return [numbers[key] for numbers in self.rounds if key in numbers]

    def best_round(self, key: str, better: Better) -> Numbers:
        pick = max if better is Better.HIGHER else min
        return pick((numbers for numbers in self.rounds if key in numbers), key=lambda n: n[key])

    def best(self, key: str, better: Better) -> float | None:
        return self.best_round(key, better)[key] if self.values(key) else None


LEFT_OUT = Outcome(skipped="left out by --only")


@dataclass(frozen=True)
class Result:
    row: Row
    martlet: Outcome
    peer: Outcome

    def ratio(self) -> float | None:
        martlet = self.martlet.best(self.row.key, self.row.better)
        peer = self.peer.best(self.row.key, self.row.better)
        return martlet / peer if martlet is not None and peer else None

    def unmeasured(self) -> bool:
        """A server that was asked gave no number."""
        asked = [self.martlet, self.peer] if self.row.measurement.has_peer else [self.martlet]
        return any(one is not LEFT_OUT and not one.values(self.row.key) for one in asked)

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
    skipped = {program.name: why_skipped(measurement, program) for program in programs}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        for program in programs:
            if skipped[program.name] or program.name in failed:
                continue
            tell(f"{measurement.name}: {program.name}, round {turn + 1} of {rounds}")
            try:
                noise = Noise()
                numbers = measurement.run(program, scale)
                numbers[NOISE_KEY] = noise.share()
                rounds_of[program.name].append(numbers)
            except (BenchError, OSError, subprocess.TimeoutExpired) as error:
                failed[program.name] = str(error)
                tell(f"{measurement.name}: {program.name} failed: {error}")
    return {
        program.name: Outcome(
            () if program.name in failed else tuple(rounds_of[program.name]),
            skipped[program.name],
            failed.get(program.name),
        )
        for program in programs
    }


def why_skipped(measurement: Measurement, program: Program) -> str | None:
    if program is not MARTLET and not measurement.has_peer:
        return "this row has no peer"
    return program.missing()


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
