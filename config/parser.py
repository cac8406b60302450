"""Tokens to a tree of values that know their place; includes and variables are resolved here."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from config import limits
from config.errors import ConfigError, Problem, Source
from config.lexer import Kind, Token, lex

type_names: Final = {
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction",
    str: "a text",
    dict: "a map",
    list: "an array",
}
_SUFFIXES_OF_YAML: Final = (".yaml", ".yml")
# A bare $2a$... is a bcrypt hash and not a variable.
_BCRYPT_PREFIX: Final = "2a$"
_PROBE_KEY: Final = "value"


class DateText(str):
    """A date, as written: 2006-01-02T15:04:05Z."""

    __slots__ = ()


Value = bool | int | float | str | dict[str, "Node"] | list["Node"]


class Node:
    """A value, the place of its key (or its own in an array), and whether a variable used it."""

    __slots__ = ("offset", "source", "used", "value")

    def __init__(self, value: Value, source: Source, offset: int) -> None:
        self.value = value
        self.source = source
        self.offset = offset
        self.used = False

    def problem(self, text: str) -> Problem:
        return Problem(text, self.source, self.offset)

    @property
    def type_name(self) -> str:
        return "a date" if isinstance(self.value, DateText) else type_names[type(self.value)]


Tree = dict[str, Node]


class Reader:
    """Reads one configuration with everything it includes."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.open_files: list[str] = []
        self.open_variables: list[str] = []

    def file(self, path: str) -> Tree:
        """The tree of a file; its suffix says which grammar it is written in."""
        if len(self.open_files) >= limits.MAX_INCLUDE_DEPTH:
            raise ConfigError([Problem(f"{path}: includes are nested too deep")])
        text = read_text(path)
        self.open_files.append(path)
        try:
            if path.endswith(_SUFFIXES_OF_YAML):
                from config import yamlfile

                return yamlfile.parse(Source(path, text), self)
            return self.text(Source(path, text))
        finally:
            self.open_files.pop()

    def text(self, source: Source) -> Tree:
        return _Parser(source, self).parse()

    def include(self, source: Source, path: str, offset: int) -> Tree:
        """The tree of an included file. Its path is relative to the including file's folder."""
        full = posixpath.normpath(f"{posixpath.dirname(source.name) or '.'}/{path}")
        try:
            return self.file(full)
        except OSError as error:
            text = f"cannot include '{path}': {error.strerror or error}: {full}"
            raise ConfigError([Problem(text, source, offset)]) from None

    def variable(self, source: Source, name: str, offset: int, scopes: list[Tree]) -> Value:
        """What `$name` stands for: maps from the inner to the outer, then the environment."""
        if name.startswith(_BCRYPT_PREFIX):
            return "$" + name
        for scope in reversed(scopes):
            if name in scope:
                scope[name].used = True
                return scope[name].value
        line = source.position(offset)[0]
        reference = f"variable reference for '{name}' on line {line}"
        if name in self.open_variables:
            raise ConfigError([Problem(f"{reference} is part of a cycle", source, offset)])
        if name not in self.environ:
            raise ConfigError([Problem(f"{reference} can not be found", source, offset)])
        self.open_variables.append(name)
        try:
            probe = Source(f"${name}", f"{_PROBE_KEY}={self.environ[name]}")
            return self.text(probe)[_PROBE_KEY].value
        except ConfigError as error:
            inner = error.problems[0].text
            text = f"{reference} could not be parsed from the environment: {inner}"
            raise ConfigError([Problem(text, source, offset)]) from None
        finally:
            self.open_variables.pop()


def read_text(path: str) -> str:
    """The file's text, with bytes that are not UTF-8 kept aside for the lexer to judge."""
    with open(path, "rb") as file:
        data = file.read(limits.MAX_CONFIG_FILE_BYTES + 1)
    if len(data) > limits.MAX_CONFIG_FILE_BYTES:
        limit = f"{limits.MAX_CONFIG_FILE_BYTES // limits.MIB} MB"
        raise ConfigError([Problem(f"{path}: a configuration file is {limit} at most")])
    return data.decode("utf-8", "surrogateescape")


class _Parser:
    def __init__(self, source: Source, reader: Reader) -> None:
        self.source = source
        self.reader = reader
        self.tokens = lex(source)
        self.at = 0
        self.scopes: list[Tree] = []

    def parse(self) -> Tree:
        return self.members(lambda: self.at >= len(self.tokens))

    def members(self, at_end: Callable[[], bool]) -> Tree:
        tree: Tree = {}
        self.scopes.append(tree)
        while not at_end():
            token = self.take()
            if token.kind == Kind.INCLUDE:
                tree.update(self.reader.include(self.source, str(token.value), token.offset))
            else:
                tree[str(token.value)] = Node(self.value(self.take()), self.source, token.offset)
        self.scopes.pop()
        return tree

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def upcoming(self, kind: int) -> bool:
        return self.tokens[self.at].kind == kind

    def value(self, token: Token) -> Value:
        if token.kind == Kind.MAP_START:
            tree = self.members(lambda: self.upcoming(Kind.MAP_END))
            self.at += 1
            return tree
        if token.kind == Kind.ARRAY_START:
            return self.array()
        if token.kind == Kind.VARIABLE:
            name = str(token.value)
            return self.reader.variable(self.source, name, token.offset, self.scopes)
        if token.kind == Kind.DATE:
            return self.date(token)
        return token.value

    def array(self) -> list[Node]:
        nodes: list[Node] = []
        while not self.upcoming(Kind.ARRAY_END):
            token = self.take()
            nodes.append(Node(self.value(token), self.source, token.offset))
        self.at += 1
        return nodes

    def date(self, token: Token) -> DateText:
        from datetime import datetime

        try:
            datetime.fromisoformat(str(token.value))
        except ValueError:
            self.fail("there is no such date", token.offset)
        return DateText(token.value)

    def fail(self, text: str, offset: int) -> NoReturn:
        raise ConfigError([Problem(text, self.source, offset)])
