"""For how long a producer was silent is known after a restart, too: only the broker's own absence does not count."""

from ledger import NOW_MS, Caller, Ledger, batch
from semel.testing.faulty import FaultyFiles
from semel.wire.steps import finish

DAY_MS = 86_400_000


def test_silence_of_before_a_restart_and_of_after_it_count_together() -> None:
    """Or a broker that is restarted each week would keep every producer for ever."""
    files = FaultyFiles()
    caller = Caller(files, Ledger())
    caller.create("orders")
    (partition,) = caller.log.state.partitions.all()
    caller.log.note_time(NOW_MS, 0)
    caller.append(partition, batch(2000, 0))
    caller.log.note_time(NOW_MS + 5 * DAY_MS, 5 * DAY_MS)
    caller.close()
    again = Caller(files, caller.ledger).log
    assert finish(again.forget(NOW_MS + 5 * DAY_MS, 0)) == 0
    assert finish(again.forget(NOW_MS + 7 * DAY_MS, 2 * DAY_MS)) == 0
    assert finish(again.forget(NOW_MS + 7 * DAY_MS + 1, 2 * DAY_MS + 1)) == 1


def test_of_a_quiet_broker_that_crashes_no_more_than_a_day_counts_as_absence() -> None:
    files = FaultyFiles()
    caller = Caller(files, Ledger())
    caller.create("orders")
    (partition,) = caller.log.state.partitions.all()
    caller.log.note_time(NOW_MS, 0)
    caller.append(partition, batch(2000, 0))
    caller.checkpoint()
    for day in range(1, 8):
        caller.log.note_time(NOW_MS + day * DAY_MS - 1, day * DAY_MS - 1)
        assert not caller.log.checkpoint_due
        caller.log.note_time(NOW_MS + day * DAY_MS, day * DAY_MS)
        if caller.log.checkpoint_due:
            caller.checkpoint()
    again = Caller(files.after_kill(), caller.ledger).log
    assert finish(again.forget(NOW_MS + 7 * DAY_MS + 1, 0)) == 1
