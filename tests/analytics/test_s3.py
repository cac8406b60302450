"""The S3 protocol against a small bucket of our own: uploads, ranges, credentials."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from pyspark_jetstream import cli, objects, reading, scan
from pyspark_jetstream.archive import Uploader
from pyspark_jetstream.claim import LEASE_S, Claim
from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.objects import Folder
from storage.filestore import FileStores
from tests.analytics.pauses import instead_of_pauses
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle


class Bucket(ThreadingHTTPServer):
    """Objects by path; every request must be signed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.ranges: list[str] = []
        self.fails = False


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
        if self.server.fails:
            return self._answer(403)
        if "Credential=KEY" not in self.headers.get("Authorization", ""):
            return self._answer(403)
        there = self.server.objects.get(self.path)
        tag = f'"{md5(there).hexdigest()}"' if there is not None else None
        if self.headers.get("If-None-Match") == "*" and there is not None:
            return self._answer(412)
        if self.headers.get("If-Match", tag) != tag:
            return self._answer(412)
        self.server.objects[self.path] = content
        self.server.puts.append(self.path)
        return self._answer(200, extra={"ETag": f'"{md5(content).hexdigest()}"'})

    def _list(self, prefix: str) -> None:
        found = "".join(
            f"<Contents><Key>{path.removeprefix('/bucket/')}</Key><Size>{len(content)}</Size>"
            f"<LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
            for path, content in sorted(self.server.objects.items())
            if path.startswith(f"/bucket/{prefix}")
        )
        answer = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        self._answer(200, answer.encode())

    def do_GET(self) -> None:
        if self.server.fails:
            return self._answer(403)
        path, _, query = self.path.partition("?")
        if path == "/bucket" and "list-type=2" in query:
            return self._list(parse_qs(query)["prefix"][0])
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

    def do_POST(self) -> None:
        """Deletes come as a list, however many they are."""
        content = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall(r"<Key>(.*?)</Key>", content)
        for key in keys:
            self.server.objects.pop(f"/bucket/{key}", None)
        done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{done}</DeleteResult>".encode())


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


def test_one_uploader_at_a_time(bucket: Bucket) -> None:
    """Who was killed is waited for, who only slept finds out."""
    now_s = [1000.0]
    one, other = (Claim(Folder("s3://bucket/some"), lambda: now_s[0]) for _ in range(2))
    with one:
        with pytest.raises(
            JetStreamError, match=r"another uploader is at work there \(.*, process"
        ):
            other.__enter__()
        now_s[0] += LEASE_S / 2
        one.keep()
        now_s[0] += LEASE_S / 2 + 1
        with pytest.raises(JetStreamError, match="free in 150 seconds"):
            other.__enter__()
    with other:
        other.keep()
    assert bucket.objects == {}
    one.__enter__()
    now_s[0] += LEASE_S + 1
    with other:
        with pytest.raises(JetStreamError, match="another uploader"):
            one.keep()
        one.__exit__()
        assert list(bucket.objects) == ["/bucket/some/uploader.json"]


def test_an_outage_does_not_shut_the_uploader_out(
    tmp_path: Path,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It could not give its claim up, and need not wait for it: another one has to."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    url, put, rounds = "s3://bucket/some/where", Folder.put, []

    def failing(folder: Folder, key: str, content: bytes) -> None:
        bucket.fails = len(rounds) == 1 and key.endswith(".blk")
        put(folder, key, content)

    def between(seconds: float) -> None:
        rounds.append(seconds)
        bucket.fails = False
        if len(rounds) == 2:
            with pytest.raises(JetStreamError, match="another uploader is at work"):
                Uploader(str(tmp_path), url).run()
        if len(rounds) == 3:
            raise KeyboardInterrupt
        for at in range(500):
            store.store("a", b"", b"p%d" % at, at)
        settle(stores)

    monkeypatch.setattr(Folder, "put", failing)
    instead_of_pauses(monkeypatch, between)
    words = ["archive", "--data", str(tmp_path), "--to", url, "--every", "9"]
    assert cli.main(words) == 130
    assert "403" in capfd.readouterr().err
    assert not [path for path in bucket.objects if path.endswith("uploader.json")]
    assert reading.read_table(parsed(url)).num_rows > 500
    stores.close()


def test_what_went_wrong_is_not_hidden_by_a_claim_that_stays(bucket: Bucket) -> None:
    with pytest.raises(ZeroDivisionError) as told, Claim(Folder("s3://bucket/some")):
        bucket.fails = True
        raise ZeroDivisionError
    assert "uploader.json stays" in told.value.__notes__[0]


def test_the_claim_is_kept_while_blocks_are_sent(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 1001):
        store.store("a", b"", b"p%d" % at, at)
    settle(stores)
    uploader = Uploader(str(tmp_path), "s3://bucket/some/where")
    now_s, real, kept = [1000.0], {"put": Folder.put, "delete": Folder.delete}, []

    def slow(name: str) -> Callable[..., None]:
        def work(folder: Folder, key: str, *content: bytes) -> None:
            claim = json.loads(bucket.objects["/bucket/some/where/uploader.json"])
            kept.append(claim["until"] > now_s[0])
            now_s[0] += LEASE_S * 0.6
            real[name](folder, key, *content)

        return work

    for name in real:
        monkeypatch.setattr(Folder, name, slow(name))
    monkeypatch.setattr(uploader._claim, "_now_s", lambda: now_s[0])
    assert uploader.run().sent > 2
    store.compact(700)
    settle(stores)
    uploader._follow = True
    assert uploader.run().removed > 1
    stores.delete(store)
    settle(stores)
    assert uploader.run().removed > 0
    assert all(kept)
    stores.close()


def test_objects_that_nothing_lists_are_swept(tmp_path: Path, bucket: Bucket) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 1001):
        store.store("a", b"", b"p%d" % at, at)
    settle(stores)
    url = "s3://bucket/some/where"
    Uploader(str(tmp_path), url).run()
    wanted = dict(bucket.objects)
    (folder,) = {path.rpartition("/")[0] for path in wanted if path.endswith(".blk")}
    for name in ("0000000000000001-0-0123456789abcdef.blk", "notes.txt"):
        bucket.objects[f"{folder}/{name}"] = b"?"
    bucket.objects["/bucket/some/where/streams/00000000000000ff/manifest.json"] = b"{}"
    Uploader(str(tmp_path), url).run()
    assert set(bucket.objects) == {*wanted, f"{folder}/notes.txt"}
    stores.close()
