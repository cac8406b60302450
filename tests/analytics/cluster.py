"""A standalone Spark cluster on loopback whose workers know nothing of this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import TracebackType

START_TIMEOUT_S = 90.0


def foreign_python(folder: Path) -> str:
    """A Python with the libraries of this one, but without our packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    target = next(folder.glob("lib/python*/site-packages"))
    source = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    for entry in source.iterdir():
        ours = "martlet" in entry.name or entry.suffix in (".pth", ".egg-link")
        if not ours and not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


class Cluster:
    """One master and two workers with one core each; a process group of its own."""

    def __init__(self, folder: Path, java_home: Path) -> None:
        import pyspark

        self._folder = folder
        self._spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self._env = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_NO_DAEMONIZE": "1",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Cluster:
        package = "org.apache.spark.deploy"
        self._start("master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", "0",
                    "--webui-port", "0")  # fmt: skip
        self.url = self._wait("master", r"Starting Spark master at (spark://\S+)")
        for at in (1, 2):
            words = ["--webui-port", "0", "--cores", "1", "--memory", "600m", self.url]
            self._start(f"worker{at}", f"{package}.worker.Worker", "--host", "127.0.0.1", *words)
            self._wait(f"worker{at}", r"(Successfully registered with master)")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def _start(self, name: str, *words: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self._spark_class, *words],
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self._folder,
            )
        self._processes.append(process)

    def _wait(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(pattern, (self._folder / f"{name}.log").read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError((self._folder / f"{name}.log").read_text(errors="replace"))
