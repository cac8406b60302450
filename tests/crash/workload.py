"""A seeded workload over a data directory, and a model of what a recovery may and must show."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage._fs import Files
from storage.keys import ServerKeys

Message = tuple[int, int, bytes, bytes, bytes]
KEY = ServerKeys("a key for tests")
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"codec_of": lambda settings: "zstd"},
    "chacha": {"keys": KEY},
    "zstd and chacha": {"codec_of": lambda settings: "zstd", "keys": KEY},
}

TINY: dict[str, Any] = {
    "segment_size": 16 << 10,
    "log_bytes_max": 64 << 10,
    "block_size_min": 1 << 10,
    "block_size_max": 8 << 10,
    "files_open_max": 2,
    "maps_open_max": 4,
}


@dataclass
class StreamModel:
    """What one stream holds: as of the newest durable batch, and as of everything tried."""

    live: dict[int, Message] = field(default_factory=dict)
    last_seq: int = 0
    floor: int = 1
    acked: dict[int, Message] = field(default_factory=dict)
    tried: dict[int, set[Message]] = field(default_factory=dict)
    removed_since_ack: set[int] = field(default_factory=set)
    waiting: list[tuple[int, dict[int, Message], set[int]]] = field(default_factory=list)
    removing: set[int] = field(default_factory=set)
    erased: list[bytes] = field(default_factory=list)
    erasing: list[tuple[int, list[bytes]]] = field(default_factory=list)
    wiped: list[bytes] = field(default_factory=list)

    def remove(self, seq: int) -> None:
        if self.live.pop(seq, None) is not None:
            self.removing.add(seq)

    def submitted(self, ticket: int) -> None:
        self.waiting.append((ticket, dict(self.live), self.removing))
        self.removing = set()
        self.erasing.append((ticket, self.erased))
        self.erased = []

    def settled(self, ticket: int) -> None:
        """What was erased in these batches must be on the disk no more."""
        while self.erasing and self.erasing[0][0] <= ticket:
            self.wiped += self.erasing.pop(0)[1]

    def durable(self, ticket: int) -> None:
        while self.waiting and self.waiting[0][0] <= ticket:
            self.acked = self.waiting.pop(0)[1]

    def complaint(self, found: list[Message]) -> str | None:
        """Why this is not a possible state after a crash; None: it is."""
        sequences = [message[0] for message in found]
        if sequences != sorted(set(sequences)):
            return "out of order"
        unacked_removals = set(self.removing)
        for _, _, removed in self.waiting:
            unacked_removals |= removed
        seen = {message[0]: message for message in found}
        for seq, message in self.acked.items():
            if seq not in seen and seq not in unacked_removals:
                return f"acked {seq} is missing"
            if seq in seen and seen[seq] != message and seq not in unacked_removals:
                return f"acked {seq} has another content"
        for seq, message in seen.items():
            if message not in self.tried.get(seq, set()):
                return f"{seq} was invented"
            if seq not in self.acked and not self.pending(seq):
                return f"removed {seq} is back"
        return None

    def pending(self, seq: int) -> bool:
        return (
            seq in self.live
            or any(seq in live for _, live, _ in self.waiting)
            or (seq in self.removing or any(seq in removed for _, _, removed in self.waiting))
        )


def one_operation(home: BlockHome, model: StreamModel, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.70 or not model.live:
        batch: list[Message] = []
        seq = model.last_seq
        for _ in range(rng.randint(1, 8)):
            seq += 1 if rng.random() < 0.95 else rng.randint(2, 5000)
            batch.append(
                (
                    seq,
                    rng.randint(1, 10**9),
                    b"s.%d" % rng.randint(0, 9),
                    rng.randbytes(rng.choice((0, 0, 20))),
                    rng.randbytes(rng.choice((0, 5, 100, 700))),
                )
            )
        for message in batch:
            model.live[message[0]] = message
            model.tried.setdefault(message[0], set()).add(message)
        model.last_seq = seq
        home.append_many(batch)
    elif kind < 0.74:
        count = rng.randint(1, 50)
        home.reserve(model.last_seq + 1, count)
        model.last_seq += count
    elif kind < 0.90:
        seq = rng.choice(list(model.live))
        erase = rng.random() < 0.3
        if erase and len(model.live[seq][4]) >= 100:
            model.erased.append(model.live[seq][4])
        model.remove(seq)
        home.delete(seq, erase)
    elif kind < 0.96:
        model.floor = max(model.floor, rng.choice(list(model.live)))
        for seq in [seq for seq in model.live if seq < model.floor]:
            model.remove(seq)
        home.drop(model.floor)
    else:
        cut = max(model.last_seq - rng.randint(0, 12), model.floor)
        for seq in [seq for seq in model.live if seq > cut]:
            model.remove(seq)
        model.last_seq = min(cut, model.last_seq)
        home.cut(cut)


def synced_ticket(directory: DataDirectory, rng: random.Random) -> int:
    """Lazy mode: sometimes the interval is over, and all that was written becomes durable."""
    if rng.random() < 0.5:
        return 0
    ticket = directory.written_ticket
    directory.sync()
    directory.poll()
    return 0 if directory.failure else ticket


def run(
    path: Path,
    files: Files | None,
    seed: int,
    operations: int,
    models: dict[int, StreamModel],
    durable: bool = True,
    variant: str = "plain",
) -> bool:
    """Work until done (True) or until the disk stops (False). `models` is by group."""
    rng = random.Random(seed)
    try:
        directory = DataDirectory(
            path, files, threaded=False, durable=durable, **TINY, **VARIANTS[variant]
        )
    except OSError:
        return False
    try:
        homes = [directory.create_stream({"name": str(number)}) for number in range(2)]
        for home in homes:
            models[home.group] = StreamModel()
        for _ in range(operations):
            home = rng.choice(homes)
            one_operation(home, models[home.group], rng)
            if rng.random() < 0.4:
                ticket = directory.commit()
                for model in models.values():
                    model.submitted(ticket)
            if rng.random() < 0.5:
                durable_ticket = directory.poll()
                if not durable:
                    durable_ticket = synced_ticket(directory, rng)
                for model in models.values():
                    model.durable(durable_ticket)
                    model.settled(directory.settled_ticket)
                directory.maintain()
                if directory.failure:
                    return False
        directory.close()
        if directory.failure:
            return False
        for model in models.values():
            model.submitted(0)
            model.durable(10**9)
            model.settled(10**9)
        return True
    except OSError:
        return False
    finally:
        directory.close(clean=False)
