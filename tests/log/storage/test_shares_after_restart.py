"""Shares of the producers in a log, by address, and still the same after a restart."""

from dataclasses import replace

import pytest

from ledger import NOW_MS, SETTINGS, Caller, Ledger, batch
from semel.log.core.batch_checks import Sender
from semel.log.core.shares import NoShareLeft
from semel.log.storage.log import Log
from semel.testing.faulty import FaultyFiles
from semel.wire.batch import read_header
from semel.wire.sequences import Outcome


def test_one_address_does_not_keep_all_others_from_putting_a_producer_on_record() -> None:
    files = FaultyFiles()
    settings = replace(SETTINGS, producer_states_max=8)
    caller = Caller(files, Ledger(), settings)
    caller.create("orders")

    def sends(log: Log, producer: int, address: str) -> Outcome:
        topic, sent = log.state.catalog.existing("orders"), batch(producer, 0)
        (partition,) = log.state.partitions.all()
        return log.append(topic, partition, read_header(sent), sent, NOW_MS, Sender(address)).outcome

    for producer in range(2000, 2004):
        assert sends(caller.log, producer, "greedy") is Outcome.ACCEPTED
    for _ in range(2):
        with pytest.raises(NoShareLeft, match="greedy has put 4 producers on record, and there is space for 4 more"):
            sends(caller.log, 2004, "greedy")
        assert sends(caller.log, 2003, "greedy") is Outcome.DUPLICATE, "whoever is on record stays there"
        caller.checkpoint()
        files = files.after_kill()
        caller = Caller(files, Ledger(), settings)
    assert [sends(caller.log, producer, "honest") for producer in (3000, 3001)] == [Outcome.ACCEPTED] * 2
    with pytest.raises(NoShareLeft, match="honest has put 2"):
        sends(caller.log, 3002, "honest")
    assert sends(caller.log, 4000, "late") is Outcome.ACCEPTED
