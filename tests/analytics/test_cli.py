"""The commands' words: what is refused, and how what fails below them is told."""

from __future__ import annotations

import argparse
import importlib.util
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config import flags
from pyspark_jetstream import cli, errors, job, trouble
from pyspark_jetstream.archive import Report, Uploader
from pyspark_jetstream.errors import DataLoss, JetStreamError
from storage.filestore import FileStores
from tests.analytics.pauses import instead_of_pauses
from tests.analytics.stores import SMALL_BLOCKS, settings, settle
from tests.analytics.test_export import fill
from tests.tidy.sources import ROOT


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    fill(made.create(settings("S")), 50)
    settle(made)
    yield made
    made.close()


@pytest.mark.parametrize("option", ["includeDeleted=true", "columns=seq", "endingOffsets=4"])
@pytest.mark.parametrize("command", ["export parquet", "export delta", "analytics run"])
def test_options_of_queries_are_not_for_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    words = [*command.split(), "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--option", option]) == 1
    said = capsys.readouterr().err
    assert f"option {option.partition('=')[0]} is not for keeping tables" in said
    assert "startingTimestamp" in said


@pytest.mark.parametrize(
    "words",
    [
        "analytics report X --bucket 0",
        "analytics report X --top -1",
        "analytics run --data X --out Y --every -1",
        "analytics sql --data X --memory much SELECT",
        "analytics sql --data X --cores 0 SELECT",
        "analytics sql SELECT",
        "analytics sql --tables X --option streams=S SELECT",
        "archive --data X --to Y --every soon",
        "archive --to Y",
        "archive --to Y --verify --data X",
        "archive --to Y --verify --follow",
    ],
)
def test_values_are_refused_with_the_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    assert ended.value.code == 2
    assert "usage: martlet" in capsys.readouterr().err


def test_a_monitor_that_is_not_there_ends_a_single_run_only(
    tmp_path: Path,
    stores: FileStores,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["analytics", "run", "--engine", "plain", "--data", str(tmp_path)]
    words += ["--out", str(tmp_path / "out"), "--monitor", "http://127.0.0.1:1"]
    assert cli.main([*words, "--once"]) == 1
    assert "--monitor http://127.0.0.1:1" in capsys.readouterr().err
    rounds = []

    def pause(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    instead_of_pauses(monkeypatch, pause)
    assert cli.main([*words, "--every", "3"]) == 130
    assert rounds == [3, 3]
    assert capsys.readouterr().err.count("no sample of the consumers") == 2


def rounds_of(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Ends what repeats after so many rounds, without a pause."""
    left = [count]

    def pause(seconds: float) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    instead_of_pauses(monkeypatch, pause)


def test_a_network_that_fails_now_and_then_does_not_end_what_repeats(
    tmp_path: Path,
    stores: FileStores,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds_of(monkeypatch, 4)
    real, tried = Uploader.run, []

    def run(self: Uploader) -> Report:
        tried.append(self)
        if len(tried) == 2:
            raise ConnectionResetError(104, "Connection reset by peer")
        return real(self)

    monkeypatch.setattr(Uploader, "run", run)
    words = ["archive", "--data", str(tmp_path), "--to", str(tmp_path / "archive"), "--every", "9"]
    assert cli.main(words) == 130
    assert "Connection reset by peer; next try in 9 s" in capsys.readouterr().err
    assert len(tried) == 4
    assert tried[2] is not tried[1], "one that failed may know of objects that are not there"
    assert tried[3] is tried[2]


def test_that_only_sealed_blocks_are_archived_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = made.create(settings("S"))
    told = []
    for count in (5, 500, 0, 1):
        fill(store, count)
        settle(made)
        assert cli.main(["archive", "--data", str(tmp_path), "--to", str(tmp_path / "a")]) == 0
        told.append("nothing is sealed yet" in capsys.readouterr().out)
    made.close()
    assert told == [True, False, False, False]


def test_a_sealed_block_that_is_damaged_is_not_called_unsealed(
    tmp_path: Path,
    stores: FileStores,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Uploader, "run", lambda self: Report(damaged=["1.blk: a checksum"]))
    assert cli.main(["archive", "--data", str(tmp_path), "--to", str(tmp_path / "a")]) == 1
    found = capsys.readouterr()
    assert "not archived: 1.blk: a checksum" in found.err
    assert "nothing is sealed" not in found.out


def test_what_cannot_be_done_ends_what_repeats(
    tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds_of(monkeypatch, 4)

    def failing(error: Exception, at: int) -> Callable[[], None]:
        left = [at]

        def work() -> None:
            left[0] -= 1
            if not left[0]:
                raise error

        return work

    with pytest.raises(OSError, match="no network"):
        cli.repeat(failing(OSError("no network"), at=1), 5)
    with pytest.raises(DataLoss):
        cli.repeat(failing(DataLoss("gone"), at=2), 5)
    with pytest.raises(ValueError, match="ours"):
        cli.repeat(failing(ValueError("a fault of ours"), at=2), 5)
    with pytest.raises(KeyboardInterrupt):
        cli.repeat(failing(OSError("no network"), at=2), 5)


def cut_answers() -> tuple[str, threading.Thread]:
    """A monitor whose answers end in the middle, as when the server stops."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as peer:
            peer.recv(4096)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", thread


def test_an_answer_of_the_monitor_that_is_cut_short_is_told() -> None:
    url, thread = cut_answers()
    with pytest.raises(JetStreamError, match=f"--monitor {url}: IncompleteRead"):
        job.consumer_samples(url, 1)
    thread.join(30)


def test_a_report_of_no_time_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["analytics", "report", str(tmp_path), "--since", "2026-11-02", "--until", "2026-11-01"]
    assert cli.main(words) == 1
    assert "--since 2026-11-02 is not before --until 2026-11-01" in capsys.readouterr().err


def test_the_servers_help_names_the_commands() -> None:
    (commands,) = (
        action for action in cli.build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )  # fmt: skip
    assert set(commands.choices) == set(flags.COMMANDS)


def test_every_option_says_what_it_is() -> None:
    def bare(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield from bare(inner)
            elif not action.help:
                yield f"{parser.prog} {action.dest}"

    assert list(bare(cli.build_parser())) == []


def test_no_permission_is_told_without_a_traceback(
    tmp_path: Path, stores: FileStores, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    words = ["export", "parquet", "--data", str(tmp_path), "--out", str(tmp_path / "file")]
    assert cli.main(words) == 1
    assert f"martlet export: {tmp_path}/file" in capsys.readouterr().err


def test_what_a_worker_of_spark_said_is_told_alone() -> None:
    def of(name: str, words: str) -> Exception:
        kind = type("Raised", (Exception,), {"__module__": name})
        found: Exception = kind(words)
        return found

    by_spark = "pyspark.errors.exceptions.captured"
    traced = "[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n  File x\n"
    loss = "stream $G/S begins at 9"
    worker = of(
        by_spark, f"{traced}pyspark_jetstream.errors.DataLoss: {loss}\n\n\tat org.apache.X("
    )
    assert trouble.words_of(worker) == loss
    unknown = "[TABLE_NOT_FOUND] no `x`. SQLSTATE: 42P01"
    assert trouble.words_of(of(by_spark, f"{unknown}; line 1 pos 14;\n'Project")) == unknown
    refused = FileNotFoundError("404 NoSuchBucket\n\nDebug source:\nNotFound { }")
    assert trouble.words_of(refused) == "404 NoSuchBucket"
    assert trouble.words_of(DataLoss("gone")) == "gone"
    assert (
        trouble.words_of(PermissionError(13, "Permission denied", "/x")) == "/x: Permission denied"
    )
    assert trouble.words_of(ValueError("a fault of ours")) is None


def test_a_missing_library_is_told_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    words = (
        f"No module named 'pyarrow': {sys.executable} -m pip install 'pyarrow>=17' 'obstore>=0.8'"
    )
    assert trouble.words_of(missing) == words
    spark = ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")
    assert "'pyspark>=4.2,<5'" in str(trouble.words_of(spark))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert f"python3 -m pip --python {sys.executable} install" in str(trouble.words_of(missing))


@pytest.mark.parametrize(
    "words",
    [
        "export parquet --data X --out Y",
        "export delta --data X --out Y",
        "archive --data X --to Y",
        "analytics run --data X --out Y",
        "analytics report X",
        "analytics sql --data X SELECT",
    ],
)
def test_the_server_alone_says_what_is_missing(tmp_path: Path, words: str) -> None:
    """An environment with the server's own needs, as the container's image has it: no pyarrow."""
    hide = "import sys; sys.modules['pyarrow'] = None; from pyspark_jetstream import cli"
    run = f"{hide}; sys.exit(cli.main({words.split()!r}))"
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "install 'pyarrow>=17'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_commands_bring_what_the_extras_name() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra in ("analytics", "spark", "spark-java", "lakehouse"):
        own = [need for need in extras[extra] if not need.startswith("martlet")]
        assert set(own) <= set(errors.REQUIREMENTS[extra]), extra
