"""The servers of real stores that a trial kills and starts again: SeaweedFS, versitygw, PostgreSQL with a standby."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

import psycopg
from bench.peers import stores
from bench.peers.process import SkipReason, cache_dir

from eventually import eventually
from semel.testing.ports import free_port

# The commit of a version: Go's proxy names no other.
VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_KEY: Final = "semel"
_SECRET: Final = "semel-secret"
_BUCKET: Final = "bucket"
_ANSWER_SECONDS_MAX: Final = 60.0


class StoreServer(Protocol):
    """A store that can be killed and started."""

    @property
    def url(self) -> str: ...

    def crash(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Seaweed(stores.Seaweed):
    """The SeaweedFS of the bench."""

    def crash(self) -> None:
        self.server.crash()

    def start(self) -> None:
        self.server.start()


class Versity:
    """versitygw on a directory, built by Go once and kept in the cache of the bench."""

    def __init__(self) -> None:
        self._program = _versitygw()
        self._directory = Path(tempfile.mkdtemp(prefix="semel-versitygw-"))
        (self._directory / "data" / _BUCKET).mkdir(parents=True)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        endpoint = quote(f"http://127.0.0.1:{self._port}", safe="")
        self.url = f"s3://{_BUCKET}/prefix?endpoint={endpoint}&access_key_id={_KEY}&secret_access_key={_SECRET}"
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        options = ["--port", f"127.0.0.1:{self._port}", "--access", _KEY, "--secret", _SECRET]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, *options, "posix", self._directory / "data"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process = self._process
        if not eventually(lambda: process.poll() is not None or self._answers()) or process.poll() is not None:
            raise SkipReason(f"versitygw does not answer: {(self._directory / 'log').read_text()[-300:]}")

    def crash(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self.crash()
        shutil.rmtree(self._directory)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/", timeout=_ANSWER_SECONDS_MAX)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


class Postgres(stores.Postgres):
    """The PostgreSQL of the bench. What a crash of the server takes is only what was not acknowledged."""

    def crash(self) -> None:
        self.server.crash()

    def start(self) -> None:
        self.server.start()
        assert eventually(self._is_followed)

    def _is_followed(self) -> bool:
        with psycopg.connect(self.server.url()) as connection:
            (followers,) = connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone() or (0,)
        return bool(followers)


def _versitygw() -> Path:
    """The program; it is built if it is not there yet."""
    cache = cache_dir() / "versitygw"
    program = cache / "versitygw"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise SkipReason("versitygw is built by Go, and go is not on PATH")
    built = subprocess.run(
        ["go", "install", VERSITYGW], env={**os.environ, "GOBIN": str(cache)}, capture_output=True, text=True
    )
    if built.returncode:
        raise SkipReason(f"versitygw cannot be built: {built.stderr[-300:]}")
    return program


SERVERS: Final[dict[str, Callable[[], StoreServer] | None]] = {
    "directory": None,
    "seaweedfs": Seaweed,
    "versitygw": Versity,
    "postgres": Postgres,
}
