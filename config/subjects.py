"""What a subject in the configuration may look like."""

from __future__ import annotations


def is_valid_subject(text: str) -> bool:
    """Tokens without blanks; a `>` only as the last token."""
    if not text or any(char in " \t\n\f\r\0" for char in text):
        return False
    tokens = text.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal_subject(text: str) -> bool:
    return is_valid_subject(text) and not {"*", ">"} & set(text.split("."))
