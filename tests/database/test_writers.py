"""A transaction on SQLite that would wait for its own caller is refused, and no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.database import WaitsForItself, engine_of, within
from semel.database.writers import file_of, writing


def test_only_a_transaction_on_the_file_in_which_its_caller_writes_is_refused(tmp_path: Path) -> None:
    """An application may have several databases, and each of them its own writer."""
    own, other = (engine_of(f"sqlite:///{tmp_path}/{name}.db") for name in ("own", "other"))
    is_open = True
    with own.connect() as connection:
        transaction = connection.begin()
        with within(connection):
            """Looks which file it is."""
        with writing(file_of(connection), lambda: is_open):
            with other.begin() as another:
                another.exec_driver_sql("CREATE TABLE numbers (number)")
            with pytest.raises(WaitsForItself, match=r"own\.db"):
                own.begin().__enter__()
            transaction.commit()
            is_open = False
            with own.begin() as following:
                following.exec_driver_sql("CREATE TABLE numbers (number)")
    for engine in (own, other):
        engine.dispose()
