"""The package by itself: it knows nothing of the server, and works out of a zip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspark_jetstream import packed
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, settings, settle
from tests.tidy.sources import ROOMS, ROOT, functions, modules_named

PACKAGE = ROOT / "pyspark_jetstream"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
READ = """
import pyspark_jetstream, sys
assert ".zip" in pyspark_jetstream.__file__, pyspark_jetstream.__file__
from pyspark_jetstream import options, reading
table = reading.read_table(options.parse({"path": sys.argv[1]}))
print(table.num_rows)
assert not {"server", "storage", "config", "raft"} & set(sys.modules)
"""


def test_it_imports_nothing_of_the_server() -> None:
    wrong = [
        f"{path.name} imports {module}"
        for path in sorted(PACKAGE.iterdir())
        if path.suffix in (".py", ".pyx", ".pyi")
        for module in modules_named(path)
        if module.split(".")[0] in ROOMS
    ]
    assert not wrong, wrong


def test_files_and_functions_stay_short() -> None:
    for path in (*PACKAGE.glob("*.py"), *PACKAGE.glob("*.pyx")):
        assert len(path.read_text().splitlines()) <= FILE_LINES_MAX, path.name
        for name, lines in functions(path):
            assert lines <= FUNCTION_LINES_MAX, f"{path.name}:{name}"


def test_in_a_checkout_that_is_not_compiled(tmp_path: Path, spark: Any) -> None:
    """Python finds the sources there first and says so; the command and Spark's workers do not."""
    checkout = tmp_path / "checkout"
    shutil.copytree(PACKAGE, checkout / PACKAGE.name, ignore=shutil.ignore_patterns("*.so"))
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    run: Any = {"cwd": checkout, "env": environment, "capture_output": True, "text": True}
    words = [sys.executable, "-c", "import pyspark_jetstream"]
    done = subprocess.run(words, timeout=120, check=False, **run)
    assert f"{checkout}/pyspark_jetstream is not compiled: run make build there" in done.stderr
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    stores.create(settings("S")).store("a", b"", b"p", 1)
    settle(stores)
    stores.close()
    words = [str(Path(sys.executable).with_name("martlet")), "analytics", "sql", "--json"]
    words += ["--data", str(tmp_path), "SELECT subject, size FROM messages", "--option"]
    done = subprocess.run([*words, "columns=subject,size"], timeout=300, check=False, **run)
    assert done.stdout == '{"subject":"a","size":1}\n', done.stderr


def test_out_of_a_zip(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(100):
        store.store("a", b"", b"p", at)
    settle(stores)
    stores.close()
    target = tmp_path / "package.zip"
    packed.write_zip(target)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", READ, str(tmp_path)],
        env={"PYTHONPATH": ":".join([str(target), *libraries])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.stdout, done.stderr) == ("100\n", "")
