"""A real PostgreSQL, without an administrator and in a directory of its own: for tests, and for the demo.

    server = PostgresServer()
    book_payment(server.new_database())
    server.stop()

Nothing is synced to the disk unless asked for: it is the server that gets killed, and never the machine. PostgreSQL
refuses to run as root, so it runs as somebody else there: `postgres_programs` finds out as whom, and where. This must
never touch a server that it has not started.
"""

import contextlib
import copy
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from semel.testing.postgres_programs import (
    PostgresMissing,
    any_programs,
    find_ground,
    pypi_programs,
    runs_as,
)

__all__ = ["PostgresMissing", "PostgresServer", "any_programs", "pypi_programs"]

# Far beyond what it takes: a busy machine is not a broken server.
START_SECONDS: Final = 200.0
# After its own five seconds it kills what has not heard it; then it is killed itself.
_END_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_DATABASE: Final = "postgres"
# What of a running server's data means nothing to another one.
_IN_USE: Final = shutil.ignore_patterns("postmaster.pid", "postmaster.opts", "pgsql_tmp*")


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
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise PostgresMissing(f"psycopg cannot be imported: {error}: pip install 'semel[postgres]'") from error
        self._start_seconds = start_seconds
        self._hears_interrupts = hears_interrupts
        self._port = _free_port()
        self._settings = {
            "fsync": "off",
            **(settings or {}),
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
        }
        with contextlib.ExitStack() as undoing:
            self._ground = find_ground(programs)
            undoing.callback(shutil.rmtree, self._ground.directory)
            self._initialise()
            self.start()
            undoing.pop_all()

    def start(self) -> None:
        """Returns when it answers: in the beginning, and after each crash."""
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        ground = self._ground
        try:
            with (ground.directory / "log").open("ab") as log:
                self._process = subprocess.Popen(
                    [ground.programs / "postgres", "-D", ground.data, *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=ground.directory,
                    start_new_session=not self._hears_interrupts,
                    **runs_as(ground.account),
                )
        except OSError as error:
            raise PostgresMissing(f"the server does not start: {error}") from error
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

    def new_standby(self, name: str) -> "PostgresServer":
        """A server that follows this one, as `name` in `synchronous_standby_names`. The caller stops it."""
        import psycopg

        standby = copy.copy(self)
        standby._port = _free_port()
        standby._ground = find_ground(self._ground.programs)
        follows = f"host=127.0.0.1 port={self._port} user=semel application_name={name}"
        standby._settings = {
            **self._settings,
            "port": str(standby._port),
            "primary_conninfo": follows,
            "synchronous_standby_names": "",
        }
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('standby', fast => true)")
            shutil.copytree(self._ground.data, standby._ground.data, dirs_exist_ok=True, ignore=_IN_USE)
            label = connection.execute("SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)").fetchone()
        (standby._ground.data / "backup_label").write_text(str(label[0]) if label else "")
        (standby._ground.data / "standby.signal").touch()
        account = standby._ground.account
        if account is not None:
            for path in standby._ground.data.rglob("*"):
                os.chown(path, account.user_id, account.group_id)
        standby.start()
        return standby

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
        shutil.rmtree(self._ground.directory)

    def _initialise(self) -> None:
        obstacle = self._initdb()
        if obstacle:
            # LC_ALL may name a language that this machine does not have: then in none.
            obstacle = self._initdb("--no-locale")
        if obstacle:
            raise PostgresMissing(f"initdb failed: {obstacle}")

    def _initdb(self, *options: str) -> str:
        """Why it failed; nothing if all is well."""
        ground = self._ground
        how = ["-U", "semel", "--auth=trust", "--encoding=utf8", "--no-sync", *options]
        try:
            made = subprocess.run(
                [ground.programs / "initdb", "-D", ground.data, *how],
                capture_output=True,
                text=True,
                cwd=ground.directory,
                **runs_as(ground.account),
            )
        except OSError as error:
            return str(error)
        return " ".join(made.stderr.split()) if made.returncode else ""

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
                # The server does not tell when it is ready, so it is asked again and again.
                time.sleep(_POLL_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
