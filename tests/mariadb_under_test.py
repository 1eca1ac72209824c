"""The MariaDB that tests run against: a server of this run in its own directory, or the one that SEMEL_TEST_MARIADB
names (mysql+pymysql://user@host:port). Without the program `mariadbd` the tests that need it are skipped.

It is a server without tables of its own, which needs no installation and asks nobody for a password; it listens on the
machine itself alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from eventually import eventually
from semel.testing.ports import free_port
from semel.testing.postgres_programs import PostgresMissing, account_of_server, runs_as

ON_MARIADB: Final = {
    *("inbox/test_claiming.py", "inbox/test_reaper.py", "offsets/test_offsets_with_output.py"),
    *("http/test_http_races.py", "http/test_http_reaper.py", "http/test_http_steps.py"),
    *("inbox/test_loop.py", "outbox/test_adding.py", "outbox/test_relaying.py"),
    "steps/test_workflows.py",
    *("database/test_open_transactions.py", "schema/test_making.py", "schema/test_printing.py"),
    *(
        "tables/test_table_commits.py",
        "tables/test_bad_rows.py",
        "tables/test_sink_servers.py",
        "tables/test_sink_names.py",
    ),
}
"""The modules of tests that run on MariaDB besides SQLite and PostgreSQL."""
SHARED_MARIADB: Final = os.environ.get("SEMEL_TEST_MARIADB")
_PLACES: Final = ("/usr/sbin", "/usr/libexec", "/usr/local/sbin")
# In memory where it can be, and with little of it: a test loses nothing that it would miss after a crash.
_SETTINGS: Final = (
    *("--no-defaults", "--skip-grant-tables", "--skip-name-resolve", "--bind-address=127.0.0.1", "--skip-log-bin"),
    *("--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=2"),
    *("--innodb-doublewrite=0", "--innodb-flush-method=nosync", "--max-connections=300", "--loose-feedback=OFF"),
)
_numbers: Final = count()


class MariadbMissing(Exception):
    """No server can run; the message says why."""


class MariadbServer:
    def __init__(self, *settings: str) -> None:
        program = shutil.which("mariadbd", path=os.pathsep.join((os.environ.get("PATH", ""), *_PLACES)))
        if program is None:
            raise MariadbMissing("no MariaDB: the program mariadbd is missing (Debian's package mariadb-server)")
        try:
            import pymysql
        except ImportError:
            raise MariadbMissing("no driver for MariaDB: pip install 'semel[mysql]'") from None
        try:
            account = account_of_server()
        except PostgresMissing as missing:
            raise MariadbMissing(str(missing)) from None
        self._directory = Path(tempfile.mkdtemp(prefix="semel-mariadb-"))
        for part in (self._directory, self._directory / "data", self._directory / "tmp"):
            part.mkdir(exist_ok=True)
            if account is not None:
                os.chown(part, account.user_id, account.group_id)
        self.port = free_port()
        log = self._directory / "log"
        with log.open("wb") as output:
            places = {"datadir": "data", "tmpdir": "tmp", "socket": "socket", "pid-file": "pid"}
            options = [f"--{option}={self._directory / place}" for option, place in places.items()]
            self._process = subprocess.Popen(
                [program, *_SETTINGS, *settings, f"--port={self.port}", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **runs_as(account),
            )

        def answer() -> Exception | bool:
            try:
                pymysql.connect(host="127.0.0.1", port=self.port, user="semel").close()
            except pymysql.err.OperationalError as error:
                return error if self._process.poll() is not None else False
            return True

        if (answered := eventually(answer)) is not True:
            said = " ".join(line for line in log.read_text().splitlines() if "ERROR" in line)
            self.stop()
            raise MariadbMissing(f"mariadbd does not start: {said or answered}")

    def url(self) -> str:
        return f"mysql+pymysql://semel@127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextmanager
def lent_database(server: str) -> Iterator[str]:
    """The URL of an empty database for one test."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with _cursor(server) as cursor:
        # Its own character set must not matter.
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET latin1")
    try:
        yield f"{server}/{name}"
    finally:
        with _cursor(server) as cursor:
            # Whoever is still connected would keep it from being dropped.
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
            for (number,) in cursor.fetchall():
                with suppress(Exception):
                    cursor.execute(f"KILL {number}")
            cursor.execute(f"DROP DATABASE {name}")


def asked(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Runs these in one transaction, names in double quotes; the answer is that to the last one."""
    with _cursor(url, autocommit=False) as cursor:
        cursor.execute("SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")
        for statement in statements:
            cursor.execute(statement)
        cursor.connection.commit()
        return list(cursor.fetchall())


@contextmanager
def _cursor(server: str, autocommit: bool = True) -> Iterator[Any]:
    import pymysql
    from sqlalchemy import make_url

    url = make_url(server)
    where = {"host": url.host, "port": url.port or 3306, "user": url.username, "database": url.database}
    connection = pymysql.connect(**where, charset="utf8mb4", autocommit=autocommit)
    with connection, connection.cursor() as cursor:
        yield cursor
