"""Parquet tables that grow by commits: each row exactly once, whatever is killed when.

    messages/account=A/stream=S/day=D/*.parquet    what everybody reads
    _martlet/state.json      offsets reached, and the files that are the table
    _martlet/commit.json     a commit that is decided but perhaps not carried out
    _martlet/staging/        files of a commit that is not decided
    _martlet/readers/        links to the files of a query that runs

Writing `commit.json` (one rename) decides: it holds the new state and the moves that lead there.
Carrying it out again changes nothing, so an interrupted one is just finished at the next start.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_jetstream.errors import JetStreamError, NotUsable
from pyspark_jetstream.modest import SteadyFile
from pyspark_jetstream.objects import local_folder

TABLE_VERSION = 1
NS_PER_DAY = 86_400_000_000_000
FILE_BYTES_TARGET = 512 << 20
FILES_OF_A_SIZE_MAX = 8
SIZE_CLASSES = tuple(FILE_BYTES_TARGET >> shift for shift in (10, 7, 4, 1))  # 512 KiB to 256 MiB
ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20
DICTIONARY_BYTES_MAX = 256 << 10
MERGE_ROWS, MERGE_BYTES = 1 << 16, 16 << 20
OPEN_FILES_MAX = 128
COLUMNS = "account,stream,subject,seq,timestamp,ts_ns,payload,headers,msg_id,size"
PARTITION_COLUMNS = ("account", "stream", "day")
GROWING = ("seq", "timestamp", "ts_ns")
HEADER_LEAVES = ("headers.key_value.key", "headers.key_value.value.list.element")
VANISHED_TRIES = 5
READERS = "readers"
PLACE = "the place of Parquet tables (martlet archive brings blocks to object stores)"
NO_TABLES = "has no tables yet: martlet analytics run (or export parquet) with --out makes them"
NO_MESSAGES = (
    "has no messages yet: what was exported had none. Streams in memory are not on disk, and "
    "--option may have chosen none"
)
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
        self.root = local_folder(root, PLACE)
        self._own = self.root / "_martlet"
        make_folders(self._own)
        self._lock = written_alone(self._own / "lock", root)
        try:
            if (self._own / "commit.json").exists():
                self._carry_out()
            self.state = read_state(self.root)
        except BaseException:
            self._lock.close()
            raise
        for name in ("staging", "ready"):
            shutil.rmtree(self._own / name, ignore_errors=True)
        sweep_readers(self._own / READERS)

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
        staged = sorted(staged)
        targets = [
            path.relative_to(folder).parent / f"{number:08d}-{at:04d}.parquet"
            for at, path in enumerate(staged)
        ]
        ready = self._make_ready(staged, targets)
        moves, added = [], []
        for path, target in zip(ready, targets, strict=True):
            rows = pq.read_metadata(path).num_rows
            moves.append([str(path.relative_to(self.root)), str(target)])
            added.append(TableFile(str(target), rows, path.stat().st_size))
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

    def _make_ready(self, staged: list[Path], targets: list[Path]) -> list[Path]:
        """The files and their names durable, before a commit is decided that counts on them.

        Folders of each partition are made once, not for each commit: a sync of a folder is felt by
        whoever syncs beside us, such as a server before it acks.
        """
        ready = [self._own / "ready" / target for target in targets]
        for path, place in zip(staged, ready, strict=True):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            make_folders(place.parent)
            path.rename(place)
        for folder in {place.parent for place in ready}:
            sync_folder(folder)
        return ready

    def _carry_out(self) -> None:
        decided = json.loads((self._own / "commit.json").read_text())
        folders = set()
        for source, target in decided["moves"]:
            place = self.root / target
            make_folders(place.parent)
            if (self.root / source).exists():
                (self.root / source).rename(place)
                folders.add(place.parent)
            elif not place.exists():
                raise JetStreamError(
                    f"{self.root}: a commit that is decided needs {source} or {target}, and "
                    "neither is there. Bring one back, or remove these tables and make them anew"
                )
        for folder in folders:
            sync_folder(folder)
        for path in decided["removals"]:
            (self.root / path).unlink(missing_ok=True)
        write_durably(self._own / "state.json", json.dumps(decided["state"]))
        (self._own / "commit.json").unlink()

    # -- large files from small ones ---------------------------------------------------------------

    def compact(self) -> int:
        """Merge files of a partition that has many of a size; how many files went."""
        merged = 0
        alike: dict[tuple[str, int], list[TableFile]] = {}
        for entry in self.state.files:
            which = str(Path(entry.path).parent), size_class(entry)
            alike.setdefault(which, []).append(entry)
        for (folder, size), entries in alike.items():
            if size < len(SIZE_CLASSES) and len(entries) > FILES_OF_A_SIZE_MAX:
                for group in groups_to_merge(entries):
                    self._merge(folder, group)
                    merged += len(group)
        return merged

    def _merge(self, folder: str, entries: list[TableFile]) -> None:
        target = self.staging() / folder / "merged.parquet"
        target.parent.mkdir(parents=True)
        schema = pq.read_schema(self.root / entries[0].path)
        with SteadyFile(target) as file, parquet_writer(file, schema) as writer:
            places = [self.root / entry.path for entry in entries]
            for group in row_groups(batches_within(places, schema)):
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
        self.commit([target], {}, replaced=entries)


def parquet_writer(file: SteadyFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Numbers that grow from row to row are kept as differences: a dictionary would have them all.

    So would one of payloads that differ, until it is given up: soon, for that was for nothing.
    """
    growing = [name for name in GROWING if name in schema.names]
    return pq.ParquetWriter(
        file, schema, compression="zstd",
        use_dictionary=[*({*schema.names} - {*growing}), *HEADER_LEAVES],
        dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
        column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    )  # fmt: skip


def batches_within(places: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """All rows of some files, a few MiB at a time however large each is."""
    for place in places:
        with pq.ParquetFile(place) as source:
            for group in range(source.num_row_groups):
                count = rows_at_once(source, group)
                for batch in source.iter_batches(batch_size=count, row_groups=[group]):
                    yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)


def rows_at_once(source: pq.ParquetFile, group: int) -> int:
    """By what a row of the group takes in memory, where values that are alike are not one."""
    about = source.metadata.row_group(group)
    held: int = about.total_byte_size
    if "size" in source.schema_arrow.names:
        sizes = source.read_row_group(group, columns=["size"]).column("size")
        held = max(held, pc.sum(sizes).as_py() or 0)
    rows: int = about.num_rows
    return min(max(rows * MERGE_BYTES // max(held, 1), 1), MERGE_ROWS)


def row_groups(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Neighbours together, up to what one row group should have."""
    gathered: list[pa.Table] = []
    held = rows = 0
    for batch in batches:
        gathered.append(batch)
        held, rows = held + batch.nbytes, rows + batch.num_rows
        if held >= ROW_GROUP_BYTES or rows >= ROW_GROUP_ROWS:
            yield pa.concat_tables(gathered)
            gathered, held, rows = [], 0, 0
    if gathered:
        yield pa.concat_tables(gathered)


def size_class(entry: TableFile) -> int:
    """Files are merged with those of their class: a large one is not rewritten for a few rows."""
    return bisect(SIZE_CLASSES, entry.bytes)


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


def check_tables(root: Path) -> None:
    if not files_now(root):
        made = (root / "_martlet").is_dir()
        raise JetStreamError(f"{root} {NO_MESSAGES if made else NO_TABLES}")


@contextmanager
def held_files(root: Path) -> Iterator[dict[str, Path]]:
    """As `files_now`, in links of our own: a merge meanwhile takes nothing away.

    Where there can be no links, as when a reader may not write, it is the files themselves.
    """
    with reader_folder(root) as folder:
        found = files_now(root) if folder is None else patiently(lambda: linked(root, folder))
        yield found


@contextmanager
def reader_folder(root: Path) -> Iterator[Path | None]:
    """Whoever finds its lock free may remove it: its reader was killed."""
    lock = root / "_martlet" / READERS / f"{uuid4().hex}.lock"
    folder = lock.with_suffix("")
    try:
        lock.parent.mkdir(exist_ok=True)
        file = written_alone(lock, str(root))
        folder.mkdir()
    except (OSError, JetStreamError):  # read-only; or a sweep was just here
        yield None
        return
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        file.close()


def linked(root: Path, folder: Path) -> dict[str, Path]:
    found = files_now(root)
    for path, place in found.items():
        link = folder / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            try:
                os.link(place, link)
            except FileNotFoundError:
                raise
            except OSError:  # this file system has no links, or the files are somebody else's
                return found
    return {path: folder / path for path in found}


def sweep_readers(folder: Path) -> None:
    """What readers that were killed left behind."""
    for lock in folder.glob("*.lock"):
        try:
            file = written_alone(lock, str(folder))
        except (JetStreamError, OSError):
            continue  # it reads; or it is another user's, who sweeps it
        with file, suppress(OSError):
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)


def patiently(read: Callable[[], Read]) -> Read:
    """`read` again from the start when files went away under it, by a merge or a commit."""
    for _ in range(VANISHED_TRIES - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


class DayWriter:
    """Staged files of one commit, one for each stream and day. Rows come in batches.

    A stream of years has thousands of days, and a process not as many descriptors: the file that
    waited longest is closed, and its day goes on in another.
    """

    def __init__(self, folder: Path, name: str = "part") -> None:
        self._folder, self._name = folder, name
        self._open: dict[str, tuple[pq.ParquetWriter, SteadyFile]] = {}  # last used last
        self._staged: list[Path] = []
        self.rows = 0

    def write(self, account: str, stream: str, batch: pa.RecordBatch) -> None:
        """Rows of one stream, with `ts_ns` and without the columns that the folders tell."""
        table = pa.Table.from_batches([batch])
        days = pc.divide(table.column("ts_ns"), NS_PER_DAY)
        found = pc.unique(days).to_pylist()
        for day in found:
            # Nearly always all of one day: then nothing is copied.
            rows = table.filter(pc.equal(days, day)) if len(found) > 1 else table
            self._writer(account, stream, day, rows.schema).write_table(rows, ROW_GROUP_ROWS)
            self.rows += rows.num_rows

    def _writer(self, account: str, stream: str, day: int, schema: pa.Schema) -> pq.ParquetWriter:
        date = str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())
        where = partition_path(account, stream, date)
        found = self._open.pop(where, None)
        if found is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            path = self._folder / where / f"{self._name}-{len(self._staged):08d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            file = SteadyFile(path)
            found = parquet_writer(file, schema), file
            self._staged.append(path)
        self._open[where] = found
        return found[0]

    def _close(self, where: str) -> None:
        writer, file = self._open.pop(where)
        writer.close()
        file.close()

    def close(self) -> list[Path]:
        """The files, complete."""
        for where in list(self._open):
            self._close(where)
        return self._staged
