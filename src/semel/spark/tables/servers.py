"""What a sink says if its database cannot be reached or fails: one line that names the sink, the table and the server.

The driver and the tasks use it, so it can be pickled. It must never show a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from semel.spark.tables.statements import one_line

# How long a connection may take: the system itself would wait for two minutes.
CONNECT_SECONDS_MAX: Final = 10
_REMEDY: Final = (
    "No row is stored without its claim: mend that, or wait for the server, and start the query again with its "
    "checkpoint"
)


@dataclass(frozen=True)
class Server:
    """Where a sink writes, for messages."""

    sink: str
    table: str
    name: str

    def unreachable(self, error: Exception) -> ConnectionError:
        return ConnectionError(
            f"sink {self.sink!r} cannot reach {self.name} and write into {self.table}: {said_by(error)}. {_REMEDY}"
        )

    @contextmanager
    def failing(self, *errors: type[Exception]) -> Iterator[None]:
        """Tells such errors of the driver for this database in one line."""
        try:
            yield
        except errors as error:
            raise RuntimeError(
                f"sink {self.sink!r} cannot write into {self.table} of {self.name}: {said_by(error)}. {_REMEDY}"
            ) from error


def server_at(url: str, product: str, sink: str, table: str) -> Server:
    parts = urlsplit(url)
    return Server(f"{parts.scheme}:{sink}", table, f"{product} at {parts.netloc.rpartition('@')[2]}{parts.path}")


def said_by(error: Exception) -> str:
    """What the driver says, without the number that it may put first."""
    return one_line(error.args[-1] if error.args else "").rstrip(".?") or type(error).__name__
