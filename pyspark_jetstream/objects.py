"""Object stores through obstore: S3, GCS, Azure, a local folder."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark_jetstream.errors import JetStreamError, NotUsable, install

LEFTOVER_AGE_S = 3600


def _obstore() -> Any:
    try:
        import obstore.store
    except ImportError:
        raise NotUsable(f"archives need obstore: {install('analytics')}") from None
    return obstore


@lru_cache(maxsize=256)
def store_at(url: str) -> Any:
    """The obstore store whose root is `url`; credentials are those of the environment."""
    obstore = _obstore()
    try:
        return obstore.store.from_url(url)
    except Exception as error:  # obstore has one class of error per store
        raise JetStreamError(f"{url}: {error}") from error


def local_path(place: str) -> Path | None:
    """None: it is in an object store."""
    if place.startswith("file://"):
        return Path(unquote(place.removeprefix("file://")))
    return None if "://" in place else Path(place)


def local_folder(place: str, what: str) -> Path:
    """A local path, for what cannot be anywhere else; a URL would only make odd folders here."""
    path = local_path(place)
    if path is None:
        raise JetStreamError(f"{place}: {what} is a local folder")
    return path


Tag = dict[str, str]
"""Which of the objects that were ever at a key this is; some stores say `e_tag`, some `version`."""


def tag_of(meta: Any) -> Tag:
    return {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}


class Changed(Exception):
    """The object is not what it was when it was read: somebody else put another."""


class Folder:
    """Objects below a URL or a local path, by key. Puts are atomic: whole or not at all."""

    def __init__(self, place: str, *, make: bool = False) -> None:
        """A local folder has to be there, but for an upload, which makes it with `make`."""
        local = local_path(place)
        self._seen: dict[str, bytes] = {}
        self.place = place.rstrip("/") if "://" in place else str(Path(place).absolute())
        if local is not None and make:
            local.mkdir(parents=True, exist_ok=True)
        if local is not None and not local.is_dir():
            raise NotUsable(f"{place} is no archive: there is no such folder")
        if "://" in place:
            self._store = store_at(self.place)
        else:
            self._store = _obstore().store.LocalStore(self.place)

    def sweep(self, now_s: float) -> None:
        """Take away what puts into a local folder left when they were killed, an hour ago or more.

        obstore writes KEY#NUMBER and renames it.
        """
        folder = local_path(self.place)
        for path in folder.rglob("*#*") if folder is not None else ():
            half = path.is_file() and re.search(r"#\d+$", path.name)
            if half and path.stat().st_mtime < now_s - LEFTOVER_AGE_S:
                path.unlink(missing_ok=True)

    def put(self, key: str, content: bytes) -> None:
        # In one request: parts of an upload that was killed would lie in the bucket for ever.
        _obstore().put(self._store, key, content, use_multipart=False)

    def put_changed(self, key: str, content: bytes) -> None:
        """Unless it is what this folder last read or put there: a request that changes nothing."""
        digest = sha256(content).digest()
        if self._seen.get(key) != digest:
            self._seen.pop(key, None)
            self.put(key, content)
            self._seen[key] = digest

    def get_remembered(self, key: str) -> bytes | None:
        """For `put_changed` to compare with."""
        content = self.get(key)
        if content is None:
            self._seen.pop(key, None)
        else:
            self._seen[key] = sha256(content).digest()
        return content

    def get(self, key: str) -> bytes | None:
        try:
            return bytes(_obstore().get(self._store, key).bytes())
        except FileNotFoundError:
            return None

    def get_tagged(self, key: str) -> tuple[bytes, Tag] | None:
        """What is there, and what `replace` takes."""
        try:
            found = _obstore().get(self._store, key)
        except FileNotFoundError:
            return None
        return bytes(found.bytes()), tag_of(found.meta)

    def replace(self, key: str, content: bytes, tag: Tag | None) -> Tag:
        """Put it, if what is there still has that tag (None: if nothing is there), else Changed.

        A store that cannot do that (AWS_CONDITIONAL_PUT=disabled) gets the object anyway.
        """
        exceptions = importlib.import_module("obstore.exceptions")
        mode = "create" if tag is None else tag
        try:
            put = _obstore().put(self._store, key, content, mode=mode, use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            there = self.get_tagged(key)
            if there is not None and there[0] == content:
                return there[1]  # ours: the answer to the first try was lost
            raise Changed(key) from error
        except (exceptions.NotSupportedError, NotImplementedError):
            put = _obstore().put(self._store, key, content, use_multipart=False)
        return tag_of(put)

    def keys(self, prefix: str) -> Iterator[str]:
        for some in _obstore().list(self._store, prefix=prefix):
            for one in some:
                yield one["path"]

    def size(self, key: str) -> int | None:
        try:
            return int(_obstore().head(self._store, key)["size"])
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        _obstore().delete(self._store, key)

    def location(self, key: str) -> str:
        return f"{self.place}/{key}"


class ObjectSource:
    """One object by ranges; a small one that is wanted whole comes with one request."""

    def __init__(self, location: str, whole: bool) -> None:
        self.name = location
        url, _, self._key = location.rpartition("/")
        self._store = store_at(url)
        self._content: bytes | None = None
        if whole:
            self._content = bytes(_obstore().get(self._store, self._key).bytes())
            self.size = len(self._content)
        else:
            self.size = int(_obstore().head(self._store, self._key)["size"])

    def read(self, start: int, length: int) -> bytes:
        if self._content is not None:
            return self._content[start : start + length]
        end = min(start + length, self.size)
        if end <= start:
            return b""
        found = _obstore().get_range(self._store, self._key, start=start, end=end)
        return bytes(found)

    def close(self) -> None:
        self._content = None
