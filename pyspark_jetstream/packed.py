"""This package as one zip for `--py-files`: executors then need no installation of it.

Python loads no compiled module from within a zip; `NativeFinder` takes it out first.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "pyspark_jetstream"
NATIVE = ("_cython_shared", "_decode", "_walk")


def write_zip(target: Path) -> int:
    """All that an executor needs, for this Python and platform; how many files."""
    folder = Path(__file__).parent
    native = [folder / f"{name}{suffix}" for name in NATIVE for suffix in EXTENSION_SUFFIXES]
    files = sorted(folder.glob("*.py")) + [path for path in native if path.exists()]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, f"{PACKAGE}/{path.name}")
    return len(files)


class NativeFinder(MetaPathFinder):
    """Finds the compiled modules of a package that was imported from a zip."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module_name = name.rpartition(".")
        if package != PACKAGE or module_name not in NATIVE:
            return None
        for suffix in EXTENSION_SUFFIXES:
            inside = f"{self._loader.archive}/{PACKAGE}/{module_name}{suffix}"
            try:
                content = self._loader.get_data(inside)
            except OSError:
                continue
            with tempfile.NamedTemporaryFile(suffix=suffix, prefix=f"{PACKAGE}-") as file:
                file.write(content)
                file.flush()
                spec = importlib.util.spec_from_file_location(name, file.name)
                if spec is not None and spec.loader is not None:
                    # Loaded now: afterwards the file may go.
                    module = importlib.util.module_from_spec(spec)
                    sys.modules[name] = module
                    spec.loader.exec_module(module)
                    return importlib.util.spec_from_loader(name, Loaded(module))
        return None


class Loaded(Loader):
    """A loader for a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        pass


def check_compiled() -> None:
    """A Python started in a checkout finds the sources there before what is installed."""
    if importlib.util.find_spec(f"{PACKAGE}._walk") is None:
        folder = Path(__file__).parent
        raise ImportError(
            f"{folder} is not compiled: run make build there, or start Python in another folder"
        )


def install(loader: Any) -> None:
    """For a package whose loader is a zip's."""
    if hasattr(loader, "archive"):
        sys.meta_path.insert(0, NativeFinder(loader))
