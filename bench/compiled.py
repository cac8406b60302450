"""Loops in C for the rows that measure a part of the server without a server around it."""

from __future__ import annotations

import fcntl
import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"


def loops(name: str, *include_dirs: str) -> ModuleType:
    """bench/<name>.pyx, built into build/bench when its source is newer."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # rows run side by side in tests
        built = _build(name, include_dirs)
    spec = importlib.util.spec_from_file_location(f"bench.{name}", built)
    if spec is None or spec.loader is None:
        raise ImportError(f"{built} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build(name: str, include_dirs: tuple[str, ...]) -> str:
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    extension = Extension(
        f"bench.{name}",
        [str(ROOT / "bench" / f"{name}.pyx")],
        include_dirs=[str(ROOT / folder) for folder in include_dirs],
        extra_compile_args=["-O3"],
    )
    modules = cythonize([extension], build_dir=str(BUILD), include_path=[str(ROOT)], quiet=True)
    command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(BUILD), str(BUILD / "temp")
    command.ensure_finalized()
    command.run()
    return str(command.get_ext_fullpath(f"bench.{name}"))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
