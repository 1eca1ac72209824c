"""A real PostgreSQL in its own directory, which needs no administrator: for tests, and for the demo.

    server = PostgresServer()
    book_payment(server.new_database())
    server.stop()

The server syncs nothing to the disk unless the settings say so: tests kill the server, and never the machine.
PostgreSQL refuses to run as root, so root runs it as another account: `postgres_programs` finds the account and the
directory. This must never touch a server that it has not started.
"""

import contextlib
import copy
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from semel.testing.ports import free_port
from semel.testing.postgres_programs import (
    PostgresMissing,
    any_programs,
    find_ground,
    pypi_programs,
    runs_as,
)

__all__ = ["PostgresMissing", "PostgresServer", "any_programs", "pypi_programs"]

# Far longer than a start takes, because a busy machine is no broken server.
START_SECONDS: Final = 200.0
# After five seconds the server itself kills its processes that still run; after this time the server is killed.
_END_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_DATABASE: Final = "postgres"
# The files of a running server's data that a copy must not have.
_IN_USE: Final = shutil.ignore_patterns("postmaster.pid", "postmaster.opts", "pgsql_tmp*")


class PostgresServer:
    """Runs until it is stopped, and then removes all its files."""

    def __init__(
        self,
        programs: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        hears_interrupts: bool = True,
    ) -> None:
        """`settings` are the server's own, as in postgresql.conf. Without `hears_interrupts`, a Ctrl-C for the program
        that started the server does not end the server.
        """
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise PostgresMissing(f"psycopg cannot be imported: {error}: pip install 'semel[postgres]'") from error
        self._start_seconds = start_seconds
        self._hears_interrupts = hears_interrupts
        self._port = free_port()
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
        """Start it, first or after a crash; returns when it answers."""
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

    @property
    def process_id(self) -> int:
        """The process id of the server, which starts all its other processes."""
        return self._process.pid

    def url(self, database: str = _DATABASE) -> str:
        """The URL of a database; without a name, of the one that every server has."""
        return f"postgresql://semel@127.0.0.1:{self._port}/{database}"

    def new_database(self, encoding: str = "UTF8") -> str:
        """Create a database; returns its URL."""
        import psycopg

        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            options = f" ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0" if encoding != "UTF8" else ""
            connection.execute(f"CREATE DATABASE {name}{options}".encode())
        return self.url(name)

    def new_standby(self, name: str) -> "PostgresServer":
        """A standby of this server, called `name` in `synchronous_standby_names`. The caller stops it."""
        import psycopg

        standby = copy.copy(self)
        standby._port = free_port()
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

    def wait_for(self, standby: str) -> None:
        """Let each commit wait for the standby of this name from now on, or for none if it is empty. Sessions learn it
        before one of their next statements.
        """
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'".encode())
            connection.execute("SELECT pg_reload_conf()")

    def crash(self) -> None:
        """Stop it like a crash: without a checkpoint, with all connections cut, and the next start has to recover."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it at once, and remove its data."""
        self.crash()
        shutil.rmtree(self._ground.directory)

    def _initialise(self) -> None:
        obstacle = self._initdb()
        if obstacle:
            # LC_ALL may name a language that this machine does not have.
            obstacle = self._initdb("--no-locale")
        if obstacle:
            raise PostgresMissing(f"initdb failed: {obstacle}")

    def _initdb(self, *options: str) -> str:
        """Run `initdb`; returns why it failed, or an empty text."""
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
                # The server does not signal when it is ready, so it is asked repeatedly.
                time.sleep(_POLL_SECONDS)
