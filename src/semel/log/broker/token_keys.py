"""The keys with which tokens are checked: read from a file, or fetched from the provider that the operator has named.

A file is read again when it has changed. The keys of a provider are fetched again after an hour, or when a token names
an unknown key, but never more than once a minute, whatever clients send. If the new keys cannot be used, the old ones
stay, and the reason is logged. Without a key every token is refused. No request may decide which URL is fetched.
"""

import asyncio
import logging
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from semel.log.broker.events import Events
from semel.log.security.tokens import Bearer, Keys, TokenSettings, TokensRefused, UnknownKey, checked, keys_of, refused

# A key set takes a few kilobytes.
CONTENT_BYTES_MAX: Final = 1024 * 1024
REFRESH_SECONDS: Final = 3_600.0
# A client chooses the key that its token names, so without this limit it could make the broker fetch again and again.
FETCH_EVERY_SECONDS: Final = 60.0
_TIMEOUT_SECONDS: Final = 10.0
# Ends a fetch even if the provider sends slowly and never stops, also if it never comes to the content.
FETCH_SECONDS_MAX: Final = 30.0

KeysOrError = bytes | Exception
# Runs the first function in a thread, and then the second one on the event loop.
RunApart = Callable[[Callable[[], bytes], Callable[[KeysOrError], None]], None]


class TokenKeys:
    """The present keys, and the check of a token with them."""

    def __init__(
        self,
        settings: TokenSettings,
        events: Events,
        *,
        time_of_day: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        run_apart: "RunApart | None" = None,
    ) -> None:
        """TokensRefused for a file that cannot be used; a provider may come later."""
        self._settings = settings
        self._events = events
        self._time_of_day = time_of_day
        self._steady = steady
        self._run_apart = run_apart or _in_a_thread
        self._keys: Keys = {}
        self._is_remote = settings.keys.startswith("https://")
        self._stamp: tuple[int, ...] | None = None
        self._is_wanted = True
        self._is_under_way = False
        self._fetched_at = self._asked_at = steady() - REFRESH_SECONDS
        if not self._is_remote:
            self._stamp = self._look()
            self._keys = self._read()

    def check(self, token: str) -> Bearer:
        """The user whom a token names; Refused if the token is not valid."""
        self.refresh()
        if not self._keys:
            raise refused("the broker has no keys to check tokens with")
        try:
            return checked(token, self._keys, self._settings, self._time_of_day())
        except UnknownKey:
            # For the next attempt, because clients try again on their own.
            self._is_wanted = True
            self.refresh()
            raise

    def refresh(self) -> None:
        """Read or fetch the keys again, if it is time for that."""
        if not self._is_remote:
            if self._look() != self._stamp:
                self._stamp = self._look()
                self._take(self._file_content())
            return
        now = self._steady()
        is_due = self._is_wanted or not self._keys or now - self._fetched_at >= REFRESH_SECONDS
        if is_due and not self._is_under_way and now - self._asked_at >= FETCH_EVERY_SECONDS:
            self._asked_at = now
            self._is_wanted = False
            self._is_under_way = True
            self._run_apart(lambda: fetch(self._settings.keys), self._take)

    def _take(self, outcome: KeysOrError) -> None:
        self._is_under_way = False
        try:
            if isinstance(outcome, Exception):
                raise TokensRefused(_reason(outcome))
            self._keys = keys_of(outcome, self._settings.algorithms)
        except TokensRefused as error:
            self._events.tell(logging.ERROR, "token_keys_refused", keys=self._settings.keys, reason=error)
        else:
            self._fetched_at = self._steady()
            self._events.tell(logging.INFO, "token_keys_read", keys=self._settings.keys, count=len(self._keys))

    def _read(self) -> Keys:
        content = self._file_content()
        try:
            if isinstance(content, Exception):
                raise TokensRefused(_reason(content))
            return keys_of(content, self._settings.algorithms)
        except TokensRefused as error:
            raise TokensRefused(f"{self._settings.keys}: {error}") from None

    def _file_content(self) -> KeysOrError:
        try:
            with open(self._settings.keys, "rb") as file:
                return file.read(CONTENT_BYTES_MAX)
        except OSError as error:
            return error

    def _look(self) -> tuple[int, ...] | None:
        """A value that changes when the file, or the right to read it, changes."""
        try:
            stat = os.stat(self._settings.keys)
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the operator has named the one provider to trust."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch(url: str, seconds_max: float = FETCH_SECONDS_MAX) -> bytes:
    """The content of an https URL; this machine must trust its certificate."""
    context = ssl.create_default_context()
    context.sslsocket_class = _ending(time.monotonic() + seconds_max)
    secure = urllib.request.HTTPSHandler(context=context)
    content = b""
    with urllib.request.build_opener(secure, _NoRedirects).open(url, timeout=_TIMEOUT_SECONDS) as answer:
        while piece := answer.read1(CONTENT_BYTES_MAX):
            content += piece
            if len(content) > CONTENT_BYTES_MAX:
                raise TokensRefused("the key set is too large")
    return content


def _ending(until: float) -> type[ssl.SSLSocket]:
    """A kind of connection that reads nothing after this time. Python's HTTP client knows only a timeout for each
    read, and reads any number of lines before the content.
    """

    class Ending(ssl.SSLSocket):
        def recv_into(self, *buffer: Any, **options: Any) -> int:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the key set comes too slowly")
            self.settimeout(min(left, _TIMEOUT_SECONDS))
            return super().recv_into(*buffer, **options)

    return Ending


def _in_a_thread(work: Callable[[], bytes], done: Callable[[KeysOrError], None]) -> None:
    loop = asyncio.get_running_loop()

    def run() -> None:
        outcome: KeysOrError
        try:
            outcome = work()
        except Exception as error:
            # Whatever it is: without an outcome the keys would never be fetched again.
            outcome = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(done, outcome)

    # A daemon: a broker that stops does not wait for a provider.
    threading.Thread(target=run, name="semel-token-keys", daemon=True).start()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return getattr(error, "strerror", None) or str(error)
