"""How long files and functions may be, and what each compiled module brings with it."""

from __future__ import annotations

import tomllib

from tests.tidy.sources import ROOT, everything_read, functions, name_of, sources

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
# How far below its ratchet something may be before the ratchet must follow.
FILE_SLACK_LINES = 80
FUNCTION_SLACK_LINES = 5

# Ratchets: what is over the bound today. A number may only get smaller; then make it so here.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}


def over(
    found: dict[str, int], ratchet: dict[str, int], bound: int, slack: int, what: str
) -> list[str]:
    wrong = [
        f"{name} has {lines} lines: {what} may have {ratchet.get(name, bound)}; split it by what "
        "its parts are for"
        for name, lines in found.items()
        if lines > ratchet.get(name, bound)
    ]
    return wrong + [
        f"{name} has shrunk to {found.get(name, 0)} lines: write that into the ratchet of "
        "tests/tidy/test_sizes.py (or take it out below the bound)"
        for name, lines in ratchet.items()
        if found.get(name, 0) < lines - slack
    ]


def test_files_stay_short() -> None:
    found = {
        name_of(path): len(path.read_text().splitlines()) for path in sources(".py", ".pyx", ".pxd")
    }
    wrong = over(found, LONG_FILES, FILE_LINES_MAX, FILE_SLACK_LINES, "a file")
    assert not wrong, "\n".join(wrong)


def test_functions_stay_short() -> None:
    found: dict[str, int] = {}
    for path in sources(".py", ".pyx", ".pxd"):
        for name, lines in functions(path):
            key = f"{name_of(path)}:{name}"
            found[key] = max(lines, found.get(key, 0))
    wrong = over(found, LONG_FUNCTIONS, FUNCTION_LINES_MAX, FUNCTION_SLACK_LINES, "a function")
    assert not wrong, "\n".join(wrong)


def test_every_compiled_module_has_its_types() -> None:
    wrong = [
        f"{name_of(path)} has no {path.with_suffix('.pyi').name} beside it: mypy sees nothing of it"
        for path in sources(".pyx")
        if not path.with_suffix(".pyi").exists()
    ]
    assert not wrong, "\n".join(wrong)


def test_every_compiled_module_is_built_and_lists_what_it_reads() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extensions = table["tool"]["setuptools"]["ext-modules"]
    names = [extension["name"] for extension in extensions]
    wrong = [] if names == sorted(names) else ["the ext-modules are not sorted by name"]
    built = {extension["sources"][0]: set(extension.get("depends", ())) for extension in extensions}
    for path in sources(".pyx"):
        name = name_of(path)
        if name not in built:
            wrong.append(f"{name} has no entry under ext-modules in pyproject.toml")
            continue
        missing = everything_read(path) - built[name]
        if missing:
            wrong.append(
                f"{name} reads {', '.join(sorted(missing))}: add to its `depends` in "
                "pyproject.toml, or an edit there is not rebuilt and the sdist lacks it"
            )
    assert not wrong, "\n".join(wrong)


def test_the_measure_of_functions() -> None:
    path = ROOT / "tests" / "tidy" / "sources.py"
    lengths = dict(functions(path))
    assert lengths["name_of"] == 2
    assert lengths["function_length"] == 10
    assert "set_add" in dict(functions(ROOT / "server" / "core" / "_subs.pyx"))
