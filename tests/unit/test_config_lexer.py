"""The NATS grammar: what is a key, what is a value, where they end, and where they stand."""

import pytest

from config.errors import ConfigError
from config.parser import Reader, Tree
from tests.unit.config_files import plain


def read(text: str, environ: dict[str, str] | None = None) -> Tree:
    from config.errors import Source

    return Reader(environ or {}).text(Source("f", text))


def values(text: str, **environ: str) -> object:
    return plain(read(text, environ))


def problem(text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, environ)
    return str(caught.value)


@pytest.mark.feature("3-001")
@pytest.mark.parametrize("text", ["a=1", "a:1", "a 1", "a = 1", "a\t:\t1", "a\n1"])
def test_joiners(text: str) -> None:
    assert values(text) == {"a": 1}


@pytest.mark.feature("3-001")
@pytest.mark.parametrize("text", ["m {b 1}", "m={b 1}", "m: {b: 1}", "m {\nb\n1\n}"])
def test_maps_need_no_joiner(text: str) -> None:
    assert values(text) == {"m": {"b": 1}}


@pytest.mark.feature("3-002")
@pytest.mark.parametrize(
    "text",
    [
        "a:1\nb:2",
        "a:1,b:2",
        "a:1;b:2",
        "a:1;\nb:2;\n",
        "{a:1,b:2}",
        '{"a":1,"b":2,}',
        "{a:1\nb:2\n",
    ],
)
def test_separators_and_braces_around_the_file(text: str) -> None:
    assert values(text) == {"a": 1, "b": 2}


@pytest.mark.feature("3-002")
def test_json_is_a_configuration() -> None:
    text = '{\n "a": {"b": [1.5, "x"], "c": true},\n "d": -1\n}\n'
    assert values(text) == {"a": {"b": [1.5, "x"], "c": True}, "d": -1}


@pytest.mark.feature("3-003")
def test_comments() -> None:
    text = (
        "# one\n// two\na: 1 # three\nb: 2 // four\nm { # five\n c: 3 // six\n}\nl: [ 1 # x\n 2 ]"
    )
    assert values(text) == {"a": 1, "b": 2, "m": {"c": 3}, "l": [1, 2]}


@pytest.mark.feature("3-004")
def test_quoted_keys_keep_what_they_contain() -> None:
    assert values("\"a b\": 1\n'c:d' = 2") == {"a b": 1, "c:d": 2}


@pytest.mark.feature("3-005")
def test_escapes_in_double_quotes() -> None:
    assert values(r'a: "\t\n\r\"\\\x41\xc3\xa9"') == {"a": '\t\n\r"\\Aé'}
    assert values('a: "one\ntwo"') == {"a": "one\ntwo"}


@pytest.mark.feature("3-005")
@pytest.mark.parametrize("text", [r'a: "\q"', r'a: "\x4"', r'a: "\xzz"', r"a: b\q"])
def test_other_escapes_are_errors(text: str) -> None:
    assert problem(text).startswith("f:1:")


@pytest.mark.feature("3-005")
def test_single_quotes_are_raw() -> None:
    assert values("a: 'x\\n\ny'") == {"a": "x\\n\ny"}


@pytest.mark.feature("3-006")
def test_where_bare_texts_end() -> None:
    text = "a: nats://x:4222/y,b: 127.0.0.1:4222;c: q#r\nd: [x,y.>]\ne { f: g}"
    assert values(text) == {
        "a": "nats://x:4222/y",
        "b": "127.0.0.1:4222",
        "c": "q#r",
        "d": ["x", "y.>"],
        "e": {"f": "g"},
    }


@pytest.mark.feature("3-007")
def test_block_text_ends_at_a_lonely_parenthesis() -> None:
    assert values("a: (\n x (y)\n )\n)\nb: 1") == {"a": "\n x (y)\n )\n", "b": 1}


@pytest.mark.feature("3-008")
def test_arrays_by_comma_or_line_and_of_mixed_types() -> None:
    assert values("a: [1, x, true, {b: 1}, [2]]") == {"a": [1, "x", True, {"b": 1}, [2]]}
    assert values("a: [\n x\n y\n]") == {"a": ["x", "y"]}


@pytest.mark.feature("3-009")
def test_booleans_in_any_case() -> None:
    text = "a: [true, YES, On]\nb: [False, nO, off]\nc: 'true'"
    assert values(text) == {"a": [True] * 3, "b": [False] * 3, "c": "true"}


@pytest.mark.feature("3-010")
@pytest.mark.parametrize("power", range(1, 7))
def test_suffixes(power: int) -> None:
    letter = "kmgtpe"[power - 1]
    for text in (letter, letter.upper()):
        assert values(f"a: 3{text}") == {"a": 3 * 1000**power}
    for text in (f"{letter}b", f"{letter}i", f"{letter}ib", f"{letter.upper()}iB"):
        assert values(f"a: -3{text}") == {"a": -3 * 1024**power}


@pytest.mark.feature("3-011")
def test_floats_and_dates() -> None:
    assert values("a: 1.5, b: -0.25, c: 2006-01-02T15:04:05Z") == {
        "a": 1.5,
        "b": -0.25,
        "c": "2006-01-02T15:04:05Z",
    }
    for text in ("a: 1.", "a: .5", "a: 2006-13-02T15:04:05Z", "a: 2006-01"):
        assert problem(text).startswith("f:1:3: ") or problem(text).startswith("f:1:5: ")


@pytest.mark.feature("3-012")
def test_what_only_starts_like_a_number_is_a_text() -> None:
    text = "a: 12ab, b: 10s, c: 4e2, d: 1.2.3.4, e: 0x10, f: 1_000"
    assert values(text) == {
        "a": "12ab",
        "b": "10s",
        "c": "4e2",
        "d": "1.2.3.4",
        "e": "0x10",
        "f": "1_000",
    }


@pytest.mark.feature("3-012")
@pytest.mark.parametrize("text", ["a: -5x", "a: 1.5s", "a: 12kbb", "a: 2024-x", "a: 99999999999g"])
def test_what_is_neither_a_number_nor_a_text_gets_a_hint(text: str) -> None:
    assert "quotes" in problem(text)


@pytest.mark.feature("3-014")
def test_variables_look_outward_and_then_into_the_environment() -> None:
    text = "X: 1\na: $X\nm { X: 2, b: $X, n { c: $X } }\nd: $PORT\ne: [$X]\ng: $LIST"
    tree = values(text, PORT="4222", LIST="[a, 1k]")
    assert tree == {
        "X": 1,
        "a": 1,
        "m": {"X": 2, "b": 2, "n": {"c": 2}},
        "d": 4222,
        "e": [1],
        "g": ["a", "1k"],
    }


@pytest.mark.feature("3-015")
def test_unknown_and_cyclic_variables() -> None:
    assert "variable reference for 'NOPE' on line 2 can not be found" in problem("a: 1\nb: $NOPE")
    assert "cycle" in problem("a: $A", A="$B", B="$A")


def test_a_broken_environment_value_is_not_shown() -> None:
    text = problem("a: $SECRET", SECRET="s3cr3t {")
    assert "SECRET" in text
    assert "s3cr3t" not in text


@pytest.mark.feature("3-016")
def test_bcrypt_is_no_variable() -> None:
    assert values("a: $2a$11$abc.def/g") == {"a": "$2a$11$abc.def/g"}
    assert "can not be found" in problem("a: $2b$11$abc")


@pytest.mark.feature("3-017")
def test_no_variables_inside_texts() -> None:
    assert values("X: 1\na: '$X'\nb: \"$X\"\nc: y$X") == {"X": 1, "a": "$X", "b": "$X", "c": "y$X"}


@pytest.mark.feature("3-020")
def test_the_last_of_equal_keys_wins() -> None:
    assert values("a: 1\na: 2") == {"a": 2}


@pytest.mark.parametrize(
    "text",
    [
        "a: 1 b",
        "m { a: 1",
        "a: [1",
        "a: [,1]",
        "a: 'x",
        'a: "x',
        "a: (\nx",
        "= 1",
        "a",
        "a:\n1",
        "m { a: }",
        "a: [1]]",
        "/ a",
        "a: 1\0",
        "{ a: 1",
        "\0",
        "m { ] }",
        "include [x]",
        "'a",
        "a: " + "[" * 200,
        "a: \udce9",
        "include\n",
        "include 'x",
    ],
)
def test_broken_texts_are_refused_with_a_position(text: str) -> None:
    assert problem(text).startswith("f:")


@pytest.mark.feature("3-019")
def test_positions_are_bytes_and_start_uneven() -> None:
    tree = read("a: 1, é: 2, b: 3\n  c: 4\nm {\n\td: 5 }")
    where = {key: node.source.position(node.offset) for key, node in tree.items()}
    assert where == {"a": (1, 0), "é": (1, 6), "b": (1, 13), "c": (2, 3), "m": (3, 1)}
    assert isinstance(tree["m"].value, dict)
    assert tree["m"].source.position(tree["m"].value["d"].offset) == (4, 2)
