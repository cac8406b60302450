"""The S3 protocol against a small bucket of our own: uploads, ranges, credentials."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pyspark_jetstream import objects, reading, scan
from pyspark_jetstream.archive import Uploader
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle


class Bucket(ThreadingHTTPServer):
    """Objects by path; every request must be signed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.ranges: list[str] = []


class Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, format: str, *words: object) -> None:
        pass

    def _answer(
        self, status: int, content: bytes = b"", extra: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(content)), "Last-Modified": formatdate(0, usegmt=True)}
        for name, value in {
            **headers,
            "ETag": f'"{md5(content).hexdigest()}"',
            **(extra or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if "Credential=KEY" not in self.headers.get("Authorization", ""):
            return self._answer(403)
        self.server.objects[self.path] = content
        self.server.puts.append(self.path)
        return self._answer(200)

    def do_GET(self) -> None:
        content = self.server.objects.get(self.path)
        if content is None:
            return self._answer(404)
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, content)
        self.server.ranges.append(wanted)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1]
        where = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
        return self._answer(206, part, {"Content-Range": where})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.server.objects.pop(self.path, None)
        self._answer(204)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with Bucket() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "KEY",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        objects.store_at.cache_clear()
        yield server
        objects.store_at.cache_clear()
        server.shutdown()
        thread.join()


def test_a_bucket_is_an_archive(tmp_path: Path, bucket: Bucket) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 1001):
        store.store(f"a.{at % 5}", b"", b"p%d" % at, at)
    settle(stores)
    url = "s3://bucket/some/where"
    report = Uploader(str(tmp_path), url).run()
    assert report.sent > 2
    seqs = reading.read_table(parsed(url)).column("seq").to_pylist()
    assert seqs == list(range(1, len(seqs) + 1))
    blocks = [path for path in bucket.puts if path.endswith(".blk")]
    assert Uploader(str(tmp_path), url).run().sent == 0
    assert [path for path in bucket.puts if path.endswith(".blk")] == blocks
    asked = parsed(url, startingOffsets="300", endingOffsets="310")
    tally = scan.Tally()
    part = reading.read_table(asked, tally)
    assert part.column("seq").to_pylist() == list(range(300, 310))
    assert bucket.ranges != []
    assert tally.bytes_read < sum(map(len, bucket.objects.values())) / 2
    stores.close()
