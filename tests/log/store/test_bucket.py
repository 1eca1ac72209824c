"""Holds what the engine for buckets makes of each answer of a server, and that it sends nothing twice."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from eventually import eventually
from semel.log.store import Changed, Exists, Missing, Store, StoreError, StoreRefused, Unsure
from semel.log.store import bucket as module
from semel.log.store.bucket import BucketStore
from semel.log.store.contract import Listed


class Bucket(ThreadingHTTPServer):
    """A server that gives each request the answer which the test wants: a status and a code, or none at all."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.requests: list[str] = []
        self.statuses: dict[str, tuple[int, str] | None] = {}
        self.etag: str | None = '"etag"'
        self.body = b""
        self.hung_up = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def answer(self, status: int, code: str = "") -> None:
        self.statuses = dict.fromkeys(("PUT", "GET", "HEAD", "DELETE", "POST"), (status, code))

    def store(self, **limits: Any) -> Store:
        options = {
            "endpoint": f"http://127.0.0.1:{self.server_port}",
            "access_key_id": "key",
            "secret_access_key": "hidden",
            "region": "us-east-1",
        }
        return BucketStore("bucket", "prefix", options, **limits)

    def close(self) -> None:
        self.hung_up.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    server: Bucket

    def answer(self) -> None:
        self.server.requests.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = self.server.statuses[self.command]
        if status is None:
            self.server.hung_up.wait()
            return
        body = f"<Error><Code>{status[1]}</Code></Error>".encode() if status[1] else self.server.body
        self.send_response(status[0])
        if self.server.etag is not None:
            self.send_header("ETag", self.server.etag)
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_PUT = do_GET = do_HEAD = do_DELETE = do_POST = answer

    def log_message(self, *_: Any) -> None:
        """A test says what went wrong."""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with closing(Bucket()) as serving:
        yield serving


def ended(store: Store, call: str, *arguments: Any) -> StoreError:
    """What the call was refused with."""

    async def called() -> None:
        await getattr(store, call)(*arguments)

    with pytest.raises(StoreError) as refusal:
        asyncio.run(called())
    assert "\n" not in str(refusal.value)
    assert "hidden" not in str(refusal.value)
    return refusal.value


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (500, "InternalError"),
        (502, ""),
        (503, "SlowDown"),
        (507, ""),
        (409, "ConditionalRequestConflict"),
        (409, "OperationAborted"),
        (429, ""),
        (408, "RequestTimeout"),
        (400, "RequestTimeout"),
        (400, "IncompleteBody"),
        (400, "BadDigest"),
        (400, "XAmzContentSHA256Mismatch"),
    ],
)
def test_an_answer_that_does_not_say_how_it_ended_leaves_the_caller_unsure(
    bucket: Bucket, status: int, code: str
) -> None:
    """A conflict among them: obstore makes 'exists' of it, and the slot may be empty."""
    bucket.answer(status, code)
    for call in (("create", "a", b"x"), ("replace", "a", b"x", '"v"'), ("get", "a"), ("get_range", "a", 0, 1)):
        error = ended(bucket.store(), *call)
        assert isinstance(error, Unsure)
        assert str(error) == f"s3://bucket/prefix: a: {status} {code}".strip()
    assert bucket.requests == ["PUT", "PUT", "GET", "GET"]


def test_a_server_that_hangs_leaves_the_caller_unsure(bucket: Bucket) -> None:
    bucket.statuses = {"PUT": None, "GET": None}
    store = bucket.store(request_seconds_max=0.5)
    assert str(ended(store, "create", "a", b"x")) == "s3://bucket/prefix: a: no answer"
    assert isinstance(ended(store, "get", "a"), Unsure)
    # The server may see a request after its caller has given it up.
    assert eventually(lambda: len(bucket.requests) >= 2)
    assert sorted(bucket.requests) == ["GET", "PUT"]


def test_a_server_that_is_gone_leaves_the_caller_unsure(bucket: Bucket) -> None:
    store = bucket.store()
    bucket.close()
    for call in (("create", "a", b"x"), ("get", "a"), ("delete", "a")):
        assert isinstance(ended(store, *call), Unsure)


def test_a_condition_that_does_not_hold_says_what_lies_there(bucket: Bucket) -> None:
    bucket.answer(412, "PreconditionFailed")
    assert isinstance(ended(bucket.store(), "create", "a", b"x"), Exists)
    bucket.statuses["HEAD"] = (200, "")
    assert isinstance(ended(bucket.store(), "replace", "a", b"x", '"v"'), Changed)
    bucket.statuses["HEAD"] = (404, "")
    assert isinstance(ended(bucket.store(), "replace", "a", b"x", '"v"'), Missing)
    bucket.statuses["HEAD"] = (503, "")
    assert isinstance(ended(bucket.store(), "replace", "a", b"x", '"v"'), Unsure)


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (403, "SignatureDoesNotMatch", "correct AWS_SECRET_ACCESS_KEY"),
        (403, "InvalidAccessKeyId", "correct AWS_ACCESS_KEY_ID"),
        (403, "AccessDenied", "allow these keys s3:GetObject"),
        (401, "", "allow these keys s3:GetObject"),
        (403, "RequestTimeTooSkewed", "set the clock of this machine"),
        (404, "NoSuchBucket", "make the bucket, or correct its name"),
        (501, "", "use a store with conditional writes"),
        (501, "NotImplemented", "use a store with conditional writes"),
        (301, "PermanentRedirect", "name the region of the bucket"),
    ],
)
def test_what_a_person_has_to_change_is_named(bucket: Bucket, status: int, code: str, remedy: str) -> None:
    bucket.answer(status, code)
    for call in (("create", "a", b"x"), ("get", "a")):
        error = ended(bucket.store(), *call)
        assert isinstance(error, StoreRefused), error
        assert remedy in str(error)


@pytest.mark.parametrize("etag", [None, ""])
def test_a_store_without_etags_is_refused(bucket: Bucket, etag: str | None) -> None:
    """A broker would send its calls again and again, and its operator read of a store that does not answer."""
    bucket.answer(200)
    bucket.etag = etag
    for call in (("create", "a", b"x"), ("get", "a")):
        error = ended(bucket.store(), *call)
        assert isinstance(error, StoreRefused), error
        assert "use a store that has them" in str(error)


LISTING = """<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated><Contents>
<Key>prefix/segments/{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"etag"</ETag><Size>3</Size>
</Contents></ListBucketResult>"""


@pytest.mark.parametrize("key", ["/a", "a//b", "./a"])
def test_an_object_that_keeps_a_listing_from_being_read_is_named(bucket: Bucket, key: str) -> None:
    """A bucket takes such keys from other programs. A broker could clear up nothing, and nobody would know why."""
    bucket.answer(200)
    bucket.body = LISTING.format(key).encode()

    async def listed() -> list[Listed]:
        return [each async for each in bucket.store().list("segments")]

    with pytest.raises(StoreRefused, match="remove that object") as refusal:
        asyncio.run(listed())
    assert f"prefix/segments/{key}" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    bucket.body = LISTING.format("a (copy)").encode()
    assert asyncio.run(listed()) == [Listed("segments/a (copy)", 3)]


async def test_a_store_is_closed_when_no_call_that_was_cancelled_can_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a thread of obstore, that is: a process that ends at that moment crashes."""
    monkeypatch.setattr(module, "_CLOSE_SECONDS_MAX", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        options = {"endpoint": f"http://127.0.0.1:{mute.getsockname()[1]}"}
        store = BucketStore("bucket", "", {**options, "access_key_id": "k", "secret_access_key": "s"})
        calls = [asyncio.ensure_future(store.get(f"key-{number}")) for number in range(20)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await store.close()
        assert not store._cancelled
