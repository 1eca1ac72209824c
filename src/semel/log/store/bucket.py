"""The engine for object stores that speak S3, through `obstore`.

A create is a PUT with `If-None-Match: *`, a replace one with `If-Match`. The status in the server's answer says what a
failed request means, not the class of the exception: `obstore` raises the same exception for a 412, which says that the
object exists, and for a 409, which only says that another client is writing it. This must never send a PUT twice.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from semel.log.store.contract import (
    Buffer,
    Changed,
    Exists,
    Found,
    Full,
    Listed,
    Missing,
    StoreError,
    StoreRefused,
    Unsure,
    check_after,
    check_body,
    check_folder,
    check_key,
    check_range,
)

if TYPE_CHECKING:
    from obstore.store import S3Store

# After this time a request is given up, and its outcome is unknown. 4 MiB over a slow line take a few seconds.
REQUEST_SECONDS_MAX: Final = 20
CONNECT_SECONDS_MAX: Final = 5
# obstore is done with a cancelled call in milliseconds.
_CLOSE_SECONDS_MAX: Final = 1.0
_CLOSE_LOOK_SECONDS: Final = 0.002

_STATUS: Final = re.compile(r"status code: (\d{3})(?:.*?<Code>(\w+)</Code>)?", re.DOTALL)
# An address that exists only on machines of AWS. obstore asks it if no keys are configured.
_METADATA_ADDRESS: Final = "169.254.169.254"
_NO_ANSWER: Final = 0
# Timeout, Conflict, Too Early, Too Many Requests. A conflict says that another client is writing the object right now.
_PASSING: Final = frozenset((408, 409, 425, 429))
# Amazon answers 400 as well if a connection stands still or breaks, or if bytes were changed on their way.
_PASSING_CODES: Final = frozenset(("RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"))
# Insufficient Storage; Ceph answers 403 with this code.
_FULL: Final = 507
_FULL_CODE: Final = "QuotaExceeded"
# What obstore says if an answer has no ETag.
_NO_TAG: Final = "ETag Header missing"
_RIGHTS: Final = "allow these keys s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket"
_REMEDIES: Final = {
    "NoSuchBucket": "make the bucket, or correct its name",
    "InvalidAccessKeyId": "correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "correct AWS_SECRET_ACCESS_KEY",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "ExpiredToken": "renew AWS_SESSION_TOKEN",
    "NotImplemented": "use a store with conditional writes (If-None-Match)",
    "PermanentRedirect": "name the region of the bucket with AWS_REGION or ?region=",
    "AuthorizationHeaderMalformed": "name the region of the bucket with AWS_REGION or ?region=",
}


T = TypeVar("T")


class _NoTag(Exception):
    """An object has no ETag, so it cannot be replaced under a condition."""


class Failure(NamedTuple):
    """A request that failed."""

    status: int
    code: str

    def __str__(self) -> str:
        return f"{self.status} {self.code}".strip() if self.status else "no answer"


class BucketStore:
    """A `Store`: the objects of a bucket below a prefix."""

    def __init__(
        self, bucket: str, prefix: str, options: dict[str, str], *, request_seconds_max: float = REQUEST_SECONDS_MAX
    ) -> None:
        """`options` are those of obstore's S3Store; the usual AWS_* variables count where an option is missing."""
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError as error:
            raise StoreRefused(f"a store at s3:// needs obstore ({error}): pip install 'semel[store]'") from error
        self._obstore = obstore
        self._cancelled: WeakSet[Awaitable[Any]] = WeakSet()
        self._address = f"s3://{bucket}/{prefix}".rstrip("/")
        self._store = self._opened(
            S3Store,
            bucket,
            prefix=prefix or None,
            client_options={
                # The user who writes http:// into the endpoint has chosen not to encrypt.
                "allow_http": True,
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
                "timeout": timedelta(seconds=request_seconds_max),
            },
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=request_seconds_max)},
            **options,
        )

    async def create(self, key: str, body: Buffer) -> str:
        check_key(key)
        check_body(body)
        try:
            return _version(await self._answer(self._obstore.put_async(self._store, key, body, mode="create")))
        except Exception as error:
            if failure(error).status == 412:
                raise Exists(f"{key} exists in {self._address}") from None
            raise self._translated(key, error) from error

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        check_key(key)
        check_body(body)
        mode: Any = {"e_tag": version}
        try:
            return _version(await self._answer(self._obstore.put_async(self._store, key, body, mode=mode)))
        except Exception as error:
            if failure(error).status != 412:
                raise self._translated(key, error) from error
        # Some stores answer 412, and not 404, if there is no object.
        with self._errors(key):
            await self._answer(self._obstore.head_async(self._store, key))
        raise Changed(f"{key} in {self._address} was replaced by somebody else")

    async def get(self, key: str) -> Found:
        check_key(key)
        with self._errors(key):
            result = await self._answer(self._obstore.get_async(self._store, key))
            return Found(bytes(await self._answer(result.bytes_async())), _version(result.meta))

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        check_key(key)
        check_range(start, size)
        # S3 cannot read a range of no bytes.
        length = max(size, 1)
        try:
            answer = await self._answer(self._obstore.get_range_async(self._store, key, start=start, length=length))
            return bytes(answer)[:size]
        except Exception as error:
            if failure(error).status == 416:
                return b""
            raise self._translated(key, error) from error

    async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        check_folder(folder)
        pages = self._obstore.list(self._store, prefix=folder or None, offset=check_after(after) or None)
        while True:
            with self._errors(folder or "/"):
                try:
                    page = await self._answer(anext(pages))
                except StopAsyncIteration:
                    return
            for meta in page:
                # Not every server that speaks S3 begins a listing where it is told.
                if meta["path"] > after:
                    yield Listed(meta["path"], meta["size"])

    async def delete(self, key: str) -> None:
        check_key(key)
        with contextlib.suppress(Missing), self._errors(key):
            await self._answer(self._obstore.delete_async(self._store, key))

    async def close(self) -> None:
        """Wait until obstore is done with the calls that were cancelled. The connections are closed with the object."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                # A task that was cancelled just now notes its call in the next turn.
                await asyncio.sleep(_CLOSE_LOOK_SECONDS)
                while self._cancelled:
                    await asyncio.sleep(_CLOSE_LOOK_SECONDS)
                    # What its threads no longer need, obstore releases only when it is called.
                    repr(self._store)

    def describe(self) -> str:
        return self._address

    def _opened(self, make: Callable[..., "S3Store"], *arguments: Any, **options: Any) -> "S3Store":
        try:
            return make(*arguments, **options)
        except Exception as error:
            # Only one of the two keys was given, or the endpoint is invalid: the first line of the error says which.
            reason = str(error).partition("\n")[0]
            raise StoreRefused(f"{self._address}: {reason}: correct the URL, or the AWS_* variables") from error

    async def _answer(self, call: Awaitable[T]) -> T:
        """The outcome of a call. If the call is cancelled, a thread of obstore holds its future for a moment, and calls
        Python once more; a process that ends at that moment crashes.
        """
        try:
            return await call
        except asyncio.CancelledError:
            self._cancelled.add(call)
            raise
        finally:
            del call

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._translated(what, error) from error

    def _translated(self, what: str, error: Exception) -> StoreError:
        failed = failure(error)
        if isinstance(error, self._obstore.exceptions.InvalidPathError):
            reason = str(error).partition("\n")[0]
            return StoreRefused(f"{self._address}: {what}: {reason}: remove that object, which is none of semel's")
        if _METADATA_ADDRESS in str(error):
            return StoreRefused(f"{self._address}: no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        if failed.status == _NO_ANSWER and "redirect" in str(error):
            return StoreRefused(f"{self._address}: {what}: redirected: {_REMEDIES['PermanentRedirect']}")
        if failed.status == 404 and failed.code != "NoSuchBucket":
            return Missing(f"{what} is not in {self._address}")
        if failed.status == _NO_ANSWER and (isinstance(error, _NoTag) or _NO_TAG in str(error)):
            return StoreRefused(f"{self._address}: {what}: objects without ETags: use a store that has them")
        if failed.status == _FULL or failed.code == _FULL_CODE:
            return Full(f"{self._address}: {what}: {failed}")
        is_passing = failed.status in _PASSING or failed.code in _PASSING_CODES
        if failed.status == _NO_ANSWER or (failed.status >= 500 and failed.status != 501) or is_passing:
            return Unsure(f"{self._address}: {what}: {failed}")
        code = "NotImplemented" if failed.status == 501 else failed.code
        return StoreRefused(f"{self._address}: {what}: {failed}: {_REMEDIES.get(code, _RIGHTS)}")


def failure(error: Exception) -> Failure:
    """The server's answer; status 0 if there was none."""
    # After these words, obstore's debugging text repeats everything.
    text = str(error).partition("Debug source:")[0]
    match = _STATUS.search(text)
    return Failure(int(match[1]), match[2] or "") if match else Failure(_NO_ANSWER, "")


def _version(result: Any) -> str:
    tag = result["e_tag"]
    if not tag:
        raise _NoTag
    return str(tag)
