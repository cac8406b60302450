"""A refused API request: what the caller is told."""

from __future__ import annotations

from dataclasses import dataclass


class ApiError(Exception):
    """An error of the table with its text filled in."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description
        self.cause = f"{description} ({err_code})"
        """What the trace of a message says of its refusal."""

    def because(self, cause: str) -> ApiError:
        """The same error, of which a trace tells more, or in other words."""
        self.cause = cause
        return self

    def shown(self) -> dict[str, object]:
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """A row of the table; a call makes the error, with what its text has in braces."""

    err_code: int
    code: int
    text: str

    def __call__(self, **parts: object) -> ApiError:
        text = self.text
        for name, part in parts.items():
            text = text.replace("{" + name + "}", str(part))
        return ApiError(self.code, self.err_code, text)
