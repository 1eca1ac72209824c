"""`semel dump URL` shows what the store of a log holds, while brokers are on it and when something is damaged."""

from pathlib import Path

import pytest

from asking import Asker, at
from eventually import eventually
from semel.testing.served import ServedBroker
from semel_command import semel, semel_failure, semel_lines


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def test_a_store_is_shown_while_a_broker_is_on_it_and_with_what_is_damaged(url: str, tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "disk", f"--store={url}") as broker:
        with Asker(broker.bootstrap) as asker:
            asker.create("payments")
            asker.produce("payments", at(1), producer_id=0, producer_epoch=0, base_sequence=0)
        lines = semel_lines("dump", url, "--journal", "--segments", "--producers", "--transactions", "--groups")
        # Who has taken over keeps a checkpoint.
        broker.restart()
        assert eventually(lambda: any(line.endswith("intact") for line in semel_lines("dump", url, "--segments")))
    assert lines[0].startswith(f"store       {url}, cluster ")
    assert "  partition 0  offsets 0 to 1, 1 producer" in lines
    assert any(line.startswith("journal/000000000000  epoch 1, a fence") for line in lines)
    assert any(line.startswith("  BatchAppended payments-0 ") for line in lines)
    assert any(line.startswith("payments-0  producer 0  epoch 0  last sequence 0") for line in lines)
    for path in (tmp_path / "store" / "segments").iterdir():
        path.write_bytes(b"?" + path.read_bytes()[1:])
    told = semel("dump", url, "--segments")
    assert told.returncode == 1
    assert "DAMAGED: the checkpoint knows another digest" in told.stdout


def test_what_is_no_store_of_a_log_is_one_line(url: str) -> None:
    assert semel_failure("dump", url).endswith("no broker was ever here")
    assert "ftp" in semel_failure("dump", "ftp://host/prefix")
