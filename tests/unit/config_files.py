"""Small configuration files for tests."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import load
from config.options import Options
from config.parser import Node


def write(folder: Path, text: str, name: str = "f.conf") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def options(folder: Path, text: str, **flags: object) -> Options:
    draft = {name.replace("__", "."): value for name, value in flags.items()}
    return load(write(folder, text), draft, {})[0]


def problems(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(path, {}, {})
    return str(caught.value).replace(path, "f")


def plain(value: object) -> object:
    """A parsed value without its positions."""
    if isinstance(value, Node):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value
