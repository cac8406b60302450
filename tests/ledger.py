"""Writes docs/features.md: every checklist line with its state and the tests that prove it.

The checklists are docs/features/*.tsv (id, priority, text). A test names the lines it proves with
`@pytest.mark.feature("1-001")`; scenario and script files name them in a line that starts with
`# feature:`. What we do otherwise on purpose stands in docs/features/differs.tsv (id, why).
Run `make ledger`; tests/tidy fails while the written file is stale.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "docs" / "features.md"
AREAS = {"core": "Core server", "jetstream": "JetStream"}


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines() if line]


def marked_in_python(path: Path) -> list[tuple[str, str]]:
    """(feature id, test name) for each feature marker on a function, class or module."""
    text = path.read_text()
    lines = text.splitlines()
    markers = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "feature"
    )
    return [
        (arg.value, test_name_after(lines, node.lineno))
        for node in markers
        for arg in node.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]


def test_name_after(lines: list[str], line: int) -> str:
    """The function or class that a marker on `line` decorates; empty for a module-wide marker."""
    for text in lines[line:]:
        match = re.match(r"\s*(?:async )?(?:def|class) (\w+)", text)
        if match:
            return match[1]
    return ""


def marked_in_script(path: Path) -> list[tuple[str, str]]:
    return [
        (feature, "")
        for line in path.read_text().splitlines()
        if line.startswith("# feature:")
        for feature in line.removeprefix("# feature:").split()
    ]


def tests_by_feature() -> dict[str, list[str]]:
    proved: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("*")):
        if path.suffix == ".py" and path != Path(__file__):
            marks = marked_in_python(path)
        elif path.suffix == ".txt":
            marks = marked_in_script(path)
        else:
            continue
        where = str(path.relative_to(ROOT))
        for feature, name in marks:
            proved[feature].add(f"{where}::{name}" if name else where)
    return {feature: sorted(names) for feature, names in proved.items()}


def render() -> str:
    proved = tests_by_feature()
    differs = dict(rows(ROOT / "docs" / "features" / "differs.tsv")[1:])
    known: set[str] = set()
    out = [
        "# Features",
        "",
        "Made by `make ledger` from the tests' markers; do not edit. `done`: a test proves it;",
        "`differs`: we do otherwise on purpose, and why; `open`: not there yet, or not proved.",
        "",
    ]
    for area, title in AREAS.items():
        lines = rows(ROOT / "docs" / "features" / f"{area}.tsv")
        known.update(line[0] for line in lines)
        done = sum(line[0] in proved and line[0] not in differs for line in lines)
        other = sum(line[0] in differs for line in lines)
        out += [
            f"## {title}",
            "",
            f"{done} done, {other} differ, {len(lines) - done - other} open, of {len(lines)}.",
            "",
            "| id | | state | what | test or reason |",
            "|---|---|---|---|---|",
        ]
        for feature, priority, text in lines:
            tests = proved.get(feature, [])
            shown = ", ".join(f"`{name}`" for name in tests[:3])
            if feature in differs:
                state, proof = "differs", differs[feature] + (f" ({shown})" if shown else "")
            else:
                state, proof = ("done", shown) if tests else ("open", "")
            out.append(f"| {feature} | {priority} | {state} | {escape(text)} | {escape(proof)} |")
        out.append("")
    unknown = sorted((set(proved) | set(differs)) - known)
    if unknown:
        raise SystemExit(f"no checklist line has the id {', '.join(unknown)}")
    return "\n".join(out)


def escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    LEDGER.write_text(render())
    print(f"wrote {LEDGER.relative_to(ROOT)}")
