"""Headers as a map: each key once, its values in order, however many fields there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_jetstream import reading
from storage.filestore import FileStores
from tests.analytics.stores import parsed, settings, settle


@pytest.mark.parametrize(
    ("fields", "keys"), [(3, 3), (30, 7), (33, 1), (33, 33), (500, 40), (240_000, 120_000)]
)
def test_each_key_once(tmp_path: Path, fields: int, keys: int) -> None:
    """Were each field compared with all the others, the last case would take minutes."""
    pairs = [(f"Key-{at * 7 % keys}", f"value {at}") for at in range(fields)]
    wanted: dict[str, list[str]] = {}
    for key, value in pairs:
        wanted.setdefault(key, []).append(value)
    lines = "".join(f"{key}: {value}\r\n" for key, value in pairs)
    stores = FileStores(tmp_path / "data", threaded=False)
    store = stores.create(settings("S"))
    for at, headers in enumerate((b"", f"NATS/1.0\r\n{lines}\r\n".encode(), b"")):
        store.store("a", headers, b"payload", at + 1)
    settle(stores)
    table = reading.read_table(parsed(tmp_path, columns="seq,headers"))
    assert table.column("headers").to_pylist() == [None, list(wanted.items()), None]
    stores.close()
