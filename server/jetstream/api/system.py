"""What only the system account may ask for. Subjects that need a cluster stay without an answer."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from server.jetstream import errors
from server.jetstream.api.request import Answer, Endpoint, Request


def purge_account(request: Request) -> Generator[None, None, Answer]:
    """Removes every stream of an account, one with each step; some may go meanwhile."""
    name = request.names[0]
    if "/" in name or "\\" in name:
        text = "account name can not contain path separators"
        raise errors.STREAM_GENERAL_ERROR(err=text)
    owner = request.engine.accounts.get(name)
    if owner is not None:
        for stream in list(owner.streams.values()):
            if not stream.closed:
                request.engine.delete(owner, stream)
                yield
    return {"initiated": True}


ENDPOINTS: Final = (Endpoint(("ACCOUNT", "PURGE"), 1, "account_purge_response", purge_account),)
