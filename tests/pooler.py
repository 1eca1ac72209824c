"""PgBouncer before a database, in transaction mode: each transaction may get another session of the server.

It has two sessions, which it hands out in turn, so that whatever belongs to a session is soon missed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from sqlalchemy import make_url

from eventually import eventually
from semel.testing.ports import free_port

PROGRAM: Final = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


@contextmanager
def pooler(direct: str, directory: Path, *settings: str) -> Iterator[str]:
    """The URL of the same database through a pooler; `settings` are further lines of its file."""
    if PROGRAM is None:
        pytest.skip("Debian's pgbouncer is not installed")
    server, port = make_url(direct), free_port()
    lines = (
        "[databases]",
        f"{server.database} = host={server.host} port={server.port} user={server.username}",
        "[pgbouncer]",
        "pool_mode = transaction",
        "listen_addr = 127.0.0.1",
        f"listen_port = {port}",
        "unix_socket_dir =",
        "auth_type = any",
        "default_pool_size = 2",
        "server_round_robin = 1",
        "logfile =",
        "pidfile =",
        # It does not run as root, and nobody else may give it another user.
        *(("user = postgres",) if os.geteuid() == 0 else ()),
        *settings,
    )
    file = directory / "pgbouncer.ini"
    file.write_text("\n".join(lines))
    for place in (directory, *directory.parents[:2]):
        place.chmod(0o755)
    pooled = server.set(port=port).render_as_string()
    with subprocess.Popen([PROGRAM, "-q", file]) as process:
        try:
            assert eventually(lambda: _answers(pooled))
            yield pooled
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
