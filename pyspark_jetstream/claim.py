"""One uploader at a time for an archive.

A folder is locked, and the lock goes with the process. In an object store an object says who has
the archive and until when: it is taken and kept by puts that fail when somebody else changed it
meanwhile, so whoever slept past its time finds out before the next save. After a kill the others
wait for that time; who could not give it up, for want of a network, takes it again by its token.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import IO

from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.objects import Changed, Folder, Tag, local_path

KEY = "uploader.json"
LOCK = "uploader.lock"
LEASE_S = 300.0


def new_token() -> str:
    return secrets.token_hex(8)


class Claim:
    """Held within a `with`."""

    def __init__(
        self,
        folder: Folder,
        now_s: Callable[[], float] = time.time,
        token: str | None = None,
    ) -> None:
        """`token`: what was left behind with it, by a claim that could not be given up, is ours."""
        self._folder, self._now_s = folder, now_s
        self._place = local_path(folder.place)
        self._file: IO[str] | None = None
        self._tag: Tag | None = None
        self._until_s = 0.0
        self._name = f"{socket.gethostname()}, process {os.getpid()}"
        self._token = token or new_token()

    def __enter__(self) -> Claim:
        if self._place is not None:
            self._lock()
            return self
        self._tag = None
        there = self._folder.get_tagged(KEY)
        if there is not None:
            content, self._tag = there
            other = json.loads(content)
            if other["token"] != self._token and other["until"] > self._now_s():
                raise self._taken(other["by"], other["until"])
        self._put()
        return self

    def __exit__(self, *failure: object) -> None:
        error = failure[1] if len(failure) > 1 else None
        try:
            self._give_up()
        except Exception as failed:  # obstore has one class of error per store
            if not isinstance(error, BaseException):
                raise
            error.add_note(f"{self._folder.place}: {KEY} stays until its time is over: {failed}")

    def _give_up(self) -> None:
        file, self._file, self._tag = self._file, None, None
        if file is not None:
            file.close()
        elif self._is_ours():
            self._folder.delete(KEY)

    def keep(self) -> None:
        """Before each change that relies on it. JetStreamError when somebody else has it by now."""
        if self._place is None and self._now_s() > self._until_s - LEASE_S * 2 / 3:
            self._put()

    def _lock(self) -> None:
        assert self._place is not None
        file = (self._place / LOCK).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise JetStreamError(f"{self._place}: another uploader is at work there") from None
        self._file = file

    def _put(self) -> None:
        until_s = self._now_s() + LEASE_S
        content = json.dumps({"by": self._name, "until": until_s, "token": self._token}).encode()
        try:
            self._tag = self._folder.replace(KEY, content, self._tag)
        except Changed:
            raise self._taken("somebody else", until_s) from None
        self._until_s = until_s

    def _is_ours(self) -> bool:
        there = self._folder.get_tagged(KEY)
        return there is not None and json.loads(there[0])["token"] == self._token

    def _taken(self, by: str, until_s: float) -> JetStreamError:
        wait_s = max(int(until_s - self._now_s()), 0) + 1
        return JetStreamError(
            f"{self._folder.place}: another uploader is at work there ({by}); if it was killed, "
            f"the archive is free in {wait_s} seconds"
        )
