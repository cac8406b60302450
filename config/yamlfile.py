"""The same configuration written as YAML: the same keys, values and positions in errors.

Plain scalars mean what they mean in the NATS grammar: `1MB` is a number, `on` a boolean, `$NAME` a
variable. Quoted scalars are texts. `include: path` merges a file, in either grammar; `<<: *name`
merges a map that stands elsewhere, below the keys beside it.
"""

from __future__ import annotations

from typing import Final

import yaml

from config.errors import ConfigError, Problem, Source
from config.lexer import Kind, lex_scalar
from config.limits import MAX_CONFIG_DEPTH
from config.parser import DateText, Node, Reader, Tree, Value

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE: Final = "tag:yaml.org,2002:merge"
# Aliases may repeat a value, but not so often that a small file becomes a huge tree.
_MAX_NODES: Final = 1_000_000


def parse(source: Source, reader: Reader) -> Tree:
    """The tree of one YAML text."""
    try:
        root = yaml.compose(source.text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(source, error)]) from None
    except yaml.YAMLError as error:
        raise ConfigError([Problem(f"{source.name}: not YAML: {error}")]) from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError([Problem("expected keys and values", source, root.start_mark.index)])
    return _Converter(source, reader).map(root)


def _syntax_problem(source: Source, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    text = f"not YAML: {error.problem or error.context}"
    return Problem(text, source, mark.index if mark else 0)


class _Converter:
    def __init__(self, source: Source, reader: Reader) -> None:
        self.source = source
        self.reader = reader
        self.scopes: list[Tree] = []
        self.nodes = 0

    def map(self, node: yaml.MappingNode) -> Tree:
        tree: Tree = {}
        self.scopes.append(tree)
        self.count(node)
        for key, value in node.value:
            offset = key.start_mark.index
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError([Problem("a key must be a text", self.source, offset)])
            if key.value == "include" and not key.style and isinstance(value, yaml.ScalarNode):
                tree.update(self.reader.include(self.source, value.value, value.start_mark.index))
            elif key.tag == _MERGE:
                for name, entry in self.merged(value).items():
                    tree.setdefault(name, entry)
            else:
                start = offset + (1 if key.style in ("'", '"') else 0)
                tree[key.value] = Node(self.value(value), self.source, start)
        self.scopes.pop()
        return tree

    def merged(self, node: yaml.Node) -> Tree:
        """The keys of a map, or of several of which the first that has a key wins."""
        maps = node.value if isinstance(node, yaml.SequenceNode) else [node]
        tree: Tree = {}
        for each in maps:
            if not isinstance(each, yaml.MappingNode):
                text, offset = "<< takes a map or a list of maps", each.start_mark.index
                raise ConfigError([Problem(text, self.source, offset)])
            tree = {**self.map(each), **tree}
        return tree

    def value(self, node: yaml.Node) -> Value:
        if isinstance(node, yaml.MappingNode):
            return self.map(node)
        if isinstance(node, yaml.SequenceNode):
            self.count(node)
            self.scopes.append({})
            entries = [
                Node(self.value(entry), self.source, entry.start_mark.index) for entry in node.value
            ]
            self.scopes.pop()
            return entries
        self.count(node)
        assert isinstance(node, yaml.ScalarNode)
        return self.scalar(node)

    def scalar(self, node: yaml.ScalarNode) -> Value:
        text, offset = str(node.value), node.start_mark.index
        if node.style:
            return text
        if text in ("", "~", "null"):
            raise ConfigError([Problem("expected a value", self.source, offset)])
        token = lex_scalar(self.source, text, offset)
        if token.kind == Kind.VARIABLE:
            return self.reader.variable(self.source, str(token.value), offset, self.scopes)
        return DateText(token.value) if token.kind == Kind.DATE else token.value

    def count(self, node: yaml.Node) -> None:
        self.nodes += 1
        if self.nodes > _MAX_NODES or len(self.scopes) > MAX_CONFIG_DEPTH:
            text = "too many values, or nested too deep"
            raise ConfigError([Problem(text, self.source, node.start_mark.index)])
