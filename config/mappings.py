"""Subject mappings: where publishes of an account's clients go instead, and how many go where."""

from __future__ import annotations

import re
from typing import Any, Final

from config.decode import TEXT, Decoder, InvalidError, Report, block, decode_block, option
from config.options import MappedTo, SubjectMapping
from config.parser import Node
from config.subjects import is_valid_subject

ALL_PERCENT: Final = 100
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")


def _weight(node: Node, _: Report) -> int:
    weight = node.value
    if type(weight) is str:
        text = weight.removesuffix("%")
        if not _INTEGER.fullmatch(text):
            raise InvalidError(f'Invalid weight "{text}" for mapping destination')
        weight = int(text)
    if not isinstance(weight, int) or isinstance(weight, bool):
        raise InvalidError
    if not 0 <= weight <= ALL_PERCENT:
        raise InvalidError(f"Invalid weight {weight} for mapping destination")
    return weight


DESTINATION_BLOCK: Final = block(
    option("destination", "dest", to="subject", by=TEXT),
    option("weight", to="percent", by=Decoder('0 to 100, or "30%"', _weight)),
    option("cluster", to="cluster", by=TEXT),
)


def _destination(node: Node, report: Report) -> MappedTo | None:
    if not isinstance(node.value, dict):
        text = f"expected a map for a mapping's destination, got {node.type_name}"
        raise InvalidError(text, node)
    before = len(report.problems)
    draft: dict[str, Any] = decode_block(node.value, DESTINATION_BLOCK, report)
    if len(report.problems) > before:
        return None
    subject = draft.setdefault("subject", "")
    if "percent" not in draft:
        raise InvalidError(f'Missing weight for mapping destination "{subject}"', node)
    return MappedTo(**draft)


def _destinations(node: Node, report: Report) -> tuple[MappedTo, ...]:
    if type(node.value) is str:
        return (MappedTo(node.value, ALL_PERCENT),)
    entries = node.value if isinstance(node.value, list) else [node]
    found = [_destination(entry, report) for entry in entries]
    return tuple(each for each in found if each is not None)


def _weights_problem(destinations: tuple[MappedTo, ...]) -> str:
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for each in destinations:
        if each.subject in seen:
            return f'duplicate entry for "{each.subject}"'
        seen.add(each.subject)
        totals[each.cluster] = totals.get(each.cluster, 0) + each.percent
        if totals[each.cluster] > ALL_PERCENT:
            return "total weight needs to be <= 100"
    return ""


def _mapping(source: str, node: Node, report: Report) -> SubjectMapping:
    if not is_valid_subject(source):
        raise InvalidError(f'Subject "{source}" is not a valid subject', node)
    destinations = _destinations(node, report)
    problems = [report.judge_mapping(source, each.subject) for each in destinations]
    wrong = _weights_problem(destinations) or next(filter(None, problems), "")
    if wrong:
        to = f' to "{node.value}"' if type(node.value) is str else ""
        raise InvalidError(f'Error adding mapping for "{source}"{to} : {wrong}', node)
    return SubjectMapping(source, destinations)


def _mappings(node: Node, report: Report) -> tuple[SubjectMapping, ...]:
    if not isinstance(node.value, dict):
        raise InvalidError
    found = []
    for source, entry in node.value.items():
        try:
            found.append(_mapping(source, entry, report))
        except InvalidError as wrong:
            report.error(wrong.node or entry, wrong.text)
    return tuple(found)


MAPPINGS: Final = Decoder("a map from subjects to their destinations", _mappings)
