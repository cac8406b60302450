"""Random configurations written in the NATS grammar, in YAML and as JSON read back as they were."""

import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.duration import DurationError, format_duration, parse_duration
from config.errors import ConfigError, Source
from config.parser import Reader
from tests.unit.config_files import plain

# An alphabet of its own, because hypothesis needs seconds to make one of all of Unicode.
ALPHABET = string.printable + "\x01\x1b\x7f\x80\xa0éß€\u2028\ufeff\U0001f600"
TEXTS = st.text(ALPHABET, max_size=12)
KEYS = st.text(string.ascii_letters + string.digits + "_-.", min_size=1, max_size=8).filter(
    lambda key: key.lower() != "include"
)
SCALARS = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(-1e9, 1e9).map(lambda number: round(number, 3) + 0.0),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TREES = st.dictionaries(KEYS, VALUES, max_size=5)
BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.:>*-]*")


def read(text: str) -> object:
    return plain(Reader({}).text(Source("f", text)))


class Writer:
    """Writes a tree, choosing among the grammar's spellings as `draw` says."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def entries(self, tree: dict[str, object]) -> str:
        parts = []
        for key, value in tree.items():
            name = self.pick(key, f'"{key}"', f"'{key}'")
            joiner = self.pick("=", ":", " ", " = ", ":  ", "\t")
            end = self.pick("\n", ",\n", ";\n", " # x\n", " // y\n\n", ", ")
            parts.append(name + joiner + self.value(value) + end)
        return "".join(parts)

    def value(self, value: object) -> str:
        if isinstance(value, dict):
            return "{" + self.pick("", "\n", " # z\n") + self.entries(value) + "}"
        if isinstance(value, list):
            return "[" + "".join(map(self.element, value)) + "]"
        if isinstance(value, bool):
            return self.pick(*(("true", "Yes", "ON") if value else ("false", "no", "oFF")))
        if isinstance(value, (int, float)):
            return repr(value)
        return self.text(str(value))

    def element(self, value: object) -> str:
        # A slash where an element may begin has to be the first of a comment.
        starts = isinstance(value, str) and value.startswith("/")
        written = self.quoted(str(value)) if starts else self.value(value)
        return written + self.pick(",", "\n", " ,\n")

    def text(self, text: str) -> str:
        if BARE.fullmatch(text) and text.lower() not in ("true", "false", "yes", "no", "on", "off"):
            return self.pick(self.quoted(text), text)
        return self.quoted(text)

    def quoted(self, text: str) -> str:
        forms = ['"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"']
        escaped = "".join(f"\\x{byte:02X}" for byte in text.encode())
        forms.append(f'"{escaped}"')
        if "'" not in text:
            forms.append(f"'{text}'")
        return self.pick(*forms)


@st.composite
def written(draw: st.DrawFn) -> tuple[dict[str, object], str]:
    tree = draw(TREES)
    text = Writer(draw).entries(tree)
    return tree, draw(st.sampled_from([text, "{" + text + "}", "{\n" + text + "\n}\n"]))


@pytest.mark.feature("3-001", "3-002", "3-003", "3-004", "3-005", "3-006", "3-008", "3-009")
@given(written())
def test_what_is_written_is_read(case: tuple[dict[str, object], str]) -> None:
    tree, text = case
    assert read(text) == tree


@pytest.mark.feature("3-002")
@given(TREES, st.sampled_from([None, 2]))
def test_json_is_read(tree: dict[str, object], indent: int | None) -> None:
    # JSON's \uHHHH is not in the grammar, so texts stay as they are; neither is \b or \f.
    text = json.dumps(tree, indent=indent, ensure_ascii=False)
    if re.search(r"\\[^\\\"tnr]", text.replace("\\\\", "")) or re.search(r"\de[+-]\d", text):
        return
    assert read(text) == tree


@given(TREES)
def test_yaml_is_read(tree: dict[str, object]) -> None:
    import yaml

    from config.yamlfile import parse

    quoted = yaml.dump(tree, allow_unicode=False, default_style='"')
    quoted = re.sub(r'!!(int|float|bool) "([^"]*)"', r"\2", quoted)
    got = plain(parse(Source("f.yaml", quoted), Reader({})))
    assert got == tree


@given(
    st.text(ALPHABET + "\0", max_size=60) | st.text("ab1k{}[]()\"'\\$#/=:,;.- \n\tx", max_size=60)
)
def test_any_text_is_read_or_refused_with_a_position(text: str) -> None:
    refusal = ""
    try:
        read(text)
    except ConfigError as error:
        refusal = str(error)
    assert not refusal or re.match(r"f:\d+:\d+: ", refusal)


SUFFIXES = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


@pytest.mark.feature("3-010")
@given(
    st.integers(-(10**6), 10**6),
    st.sampled_from("kmgtpe"),
    st.sampled_from(["", "b", "i", "ib"]),
    st.booleans(),
)
def test_suffixes(number: int, letter: str, rest: str, upper: bool) -> None:
    suffix = letter + rest
    expected = number * (1024 if rest else 1000) ** SUFFIXES[letter]
    text = f"a: {number}{suffix.upper() if upper else suffix}"
    if -(2**63) <= expected < 2**63:
        assert read(text) == {"a": expected}
    else:
        with pytest.raises(ConfigError, match="out of range"):
            read(text)


@pytest.mark.feature("3-013")
@given(st.integers(-(2**63), 2**63 - 1))
def test_durations_are_read_as_they_are_printed(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


@pytest.mark.feature("3-013")
@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("5s", 5 * 10**9),
        ("1h2m3s4ms5us6ns", 3723004005006),
        ("-1.5h", -5400 * 10**9),
        ("+.5s", 5 * 10**8),
        ("1.s", 10**9),
        ("0.3333333333333333333h", 1199999999999),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
        ("100000000000000000000ns", None),
        ("9223372036854775808ns", None),
        ("", None),
        ("3", None),
        ("-", None),
        ("s", None),
        (".", None),
        (".s", None),
        ("1d", None),
        ("1s ", None),
        (" 1s", None),
        ("1e3s", None),
    ],
)
def test_durations(text: str, nanoseconds: int | None) -> None:
    if nanoseconds is not None:
        assert parse_duration(text) == nanoseconds
    else:
        with pytest.raises(DurationError, match=r"^time: "):
            parse_duration(text)


def test_files_and_texts_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "f.conf"
    path.write_text("a: [1, é]")
    assert plain(Reader({}).file(str(path))) == {"a": [1, "é"]}
