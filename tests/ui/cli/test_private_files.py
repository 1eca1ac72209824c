"""What `semel serve` writes is for its own user: records, and what proves the passwords of users."""

import os
from pathlib import Path

import pytest

from semel.testing.served import ServedBroker


@pytest.mark.parametrize("on_store", [False, True], ids=["on a directory", "on a store"])
def test_nobody_else_may_read_what_a_broker_writes(tmp_path: Path, on_store: bool) -> None:
    before = os.umask(0o022)
    try:
        options = [f"--store=file://{tmp_path}/store"] if on_store else []
        broker = ServedBroker(tmp_path / "data", *options).start()
    finally:
        os.umask(before)
    broker.kill()
    written = list(tmp_path.rglob("*"))
    assert written
    assert [path for path in written if path.stat().st_mode & 0o077] == []
