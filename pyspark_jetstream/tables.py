"""Parquet tables that grow by commits: each row exactly once, whatever is killed when.

    messages/account=A/stream=S/day=D/*.parquet    what everybody reads
    _martlet/state.json      offsets reached, and the files that are the table
    _martlet/commit.json     a commit that is decided but perhaps not carried out
    _martlet/staging/        files of a commit that is not decided

Writing `commit.json` (one rename) decides: it holds the new state and the moves that lead there.
Carrying it out again changes nothing, so an interrupted one is just finished at the next start.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_jetstream.errors import JetStreamError, NotUsable
from pyspark_jetstream.modest import SteadyFile

TABLE_VERSION = 1
NS_PER_DAY = 86_400_000_000_000
FILE_BYTES_TARGET = 512 << 20
SMALL_FILES_MAX = 8
ROW_GROUP_ROWS = 1 << 20
COLUMNS = "account,stream,subject,seq,timestamp,ts_ns,payload,headers,msg_id,size"
PARTITION_COLUMNS = ("account", "stream", "day")
VANISHED_TRIES = 5
NO_TABLES = "has no tables yet: martlet analytics run (or export parquet) with --out makes them"
Read = TypeVar("Read")


@dataclass
class TableFile:
    """One Parquet file of the table."""

    path: str
    rows: int
    bytes: int


@dataclass
class TableState:
    """What was committed. `marks` are the business of whoever commits."""

    version: int = TABLE_VERSION
    commits: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    files: list[TableFile] = field(default_factory=list)
    marks: dict[str, Any] = field(default_factory=dict)


def load_state(content: str) -> TableState:
    found = json.loads(content)
    if found["version"] > TABLE_VERSION:
        raise NotUsable(f"the table has version {found['version']}; this knows {TABLE_VERSION}")
    found["files"] = [TableFile(**entry) for entry in found["files"]]
    return TableState(**found)


def write_durably(path: Path, content: str) -> None:
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(path: Path) -> None:
    """With their names on stable storage, as the files in them will be."""
    if not path.exists():
        make_folders(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def partition_path(account: str, stream: str, day: str) -> str:
    return f"messages/account={escaped(account)}/stream={escaped(stream)}/day={day}"


def escaped(name: str) -> str:
    """Percent codes for ASCII alone: Spark reads each code as a character, others as a byte."""
    return re.sub(r"[\x00-\x7f]+", lambda found: quote(found[0], safe=""), name)


def partition_of(path: str) -> dict[str, str]:
    """account, stream and day of a file's path."""
    pairs = (part.partition("=") for part in Path(path).parts if "=" in part)
    return {name: unquote(value) for name, _, value in pairs}


def written_alone(lock: Path, place: str) -> IO[str]:
    """The lock, held until it is closed or the process ends."""
    file = lock.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise JetStreamError(f"{place} is being written by another process") from None
    return file


class Tables:
    """One folder of tables, open for writing by this process alone."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self._own = self.root / "_martlet"
        self._own.mkdir(parents=True, exist_ok=True)
        self._lock = written_alone(self._own / "lock", root)
        try:
            if (self._own / "commit.json").exists():
                self._carry_out()
            self.state = read_state(self.root)
        except BaseException:
            self._lock.close()
            raise
        shutil.rmtree(self._own / "staging", ignore_errors=True)

    def __enter__(self) -> Tables:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.close()

    def staging(self) -> Path:
        """An empty folder for the files of the next commit."""
        folder = self._own / "staging" / f"{self.state.commits + 1}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def commit(
        self,
        staged: Iterable[Path],
        offsets: dict[str, int],
        *,
        replaced: Iterable[TableFile] = (),
        marks: dict[str, Any] | None = None,
    ) -> None:
        """Make the staged files (below `staging()`, in partition folders) part of the table."""
        folder = self._own / "staging" / f"{self.state.commits + 1}"
        gone = {entry.path for entry in replaced}
        number = self.state.commits + 1
        moves, added = [], []
        for at, path in enumerate(sorted(staged)):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            inside = path.relative_to(folder).parent
            target = str(inside / f"{number:08d}-{at:04d}.parquet")
            rows = pq.read_metadata(path).num_rows
            moves.append([str(path.relative_to(self.root)), target])
            added.append(TableFile(target, rows, path.stat().st_size))
        state = TableState(
            commits=number,
            offsets={**self.state.offsets, **offsets},
            files=[entry for entry in self.state.files if entry.path not in gone] + added,
            marks={**self.state.marks, **(marks or {})},
        )
        decided = {"state": asdict(state), "moves": moves, "removals": sorted(gone)}
        write_durably(self._own / "commit.json", json.dumps(decided))
        self._carry_out()
        self.state = state
        shutil.rmtree(folder, ignore_errors=True)

    def _carry_out(self) -> None:
        decided = json.loads((self._own / "commit.json").read_text())
        for source, target in decided["moves"]:
            place = self.root / target
            make_folders(place.parent)
            if (self.root / source).exists():
                (self.root / source).rename(place)
                sync_folder(place.parent)
        for path in decided["removals"]:
            (self.root / path).unlink(missing_ok=True)
        write_durably(self._own / "state.json", json.dumps(decided["state"]))
        (self._own / "commit.json").unlink()

    # -- large files from small ones ---------------------------------------------------------------

    def compact(self) -> int:
        """Merge the small files of each partition that has many; how many files went."""
        merged = 0
        by_folder: dict[str, list[TableFile]] = {}
        for entry in self.state.files:
            by_folder.setdefault(str(Path(entry.path).parent), []).append(entry)
        for folder, entries in by_folder.items():
            small = [entry for entry in entries if entry.bytes < FILE_BYTES_TARGET // 2]
            if len(small) > SMALL_FILES_MAX:
                for group in groups_to_merge(small):
                    self._merge(folder, group)
                    merged += len(group)
        return merged

    def _merge(self, folder: str, entries: list[TableFile]) -> None:
        target = self.staging() / folder / "merged.parquet"
        target.parent.mkdir(parents=True)
        schema = pq.read_schema(self.root / entries[0].path)
        with (
            SteadyFile(target) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for entry in entries:
                with pq.ParquetFile(self.root / entry.path) as source:
                    for batch in source.iter_batches(batch_size=1 << 16):
                        rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self.commit([target], {}, replaced=entries)


def groups_to_merge(small: list[TableFile]) -> list[list[TableFile]]:
    """In order, up to the size of a large file each."""
    groups: list[list[TableFile]] = [[]]
    size = 0
    for entry in sorted(small, key=lambda entry: entry.path):
        if size + entry.bytes > FILE_BYTES_TARGET and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.bytes
    return [group for group in groups if len(group) > 1]


def read_state(root: Path) -> TableState:
    """What was committed. Files may vanish by a merge just afterwards."""
    path = root / "_martlet" / "state.json"
    return load_state(path.read_text()) if path.exists() else TableState()


def files_now(root: Path) -> dict[str, Path]:
    """For readers: the table's files by their paths in it, and where each lies now.

    A commit that is decided but not carried out counts; whoever carries it out may move its files
    just afterwards.
    """
    try:
        decided = json.loads((root / "_martlet" / "commit.json").read_text())
    except FileNotFoundError:
        return {entry.path: root / entry.path for entry in read_state(root).files}
    moved = {target: source for source, target in decided["moves"]}
    found = {}
    for entry in load_state(json.dumps(decided["state"])).files:
        place = root / entry.path
        if entry.path in moved and not place.exists():
            place = root / moved[entry.path]
        found[entry.path] = place
    return found


def patiently(read: Callable[[], Read]) -> Read:
    """`read` again from the start when files went away under it, by a merge or a commit."""
    for _ in range(VANISHED_TRIES - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


class DayWriter:
    """Staged files of one commit, one for each stream and day. Rows come in batches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, tuple[pq.ParquetWriter, SteadyFile]] = {}
        self.rows = 0

    def write(self, account: str, stream: str, batch: pa.RecordBatch) -> None:
        """Rows of one stream, with `ts_ns` and without the columns that the folders tell."""
        table = pa.Table.from_batches([batch])
        days = pc.divide(table.column("ts_ns"), NS_PER_DAY)
        for day in pc.unique(days).to_pylist():
            rows = table.filter(pc.equal(days, day))
            self._writer(account, stream, day, rows.schema).write_table(rows, ROW_GROUP_ROWS)
            self.rows += rows.num_rows

    def _writer(self, account: str, stream: str, day: int, schema: pa.Schema) -> pq.ParquetWriter:
        date = str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())
        where = partition_path(account, stream, date)
        if where not in self._writers:
            path = self._folder / where / "part.parquet"
            path.parent.mkdir(parents=True)
            file = SteadyFile(path)
            self._writers[where] = pq.ParquetWriter(file, schema, compression="zstd"), file
        return self._writers[where][0]

    def close(self) -> list[Path]:
        """The files, complete."""
        for writer, file in self._writers.values():
            writer.close()
            file.close()
        return [self._folder / where / "part.parquet" for where in self._writers]
