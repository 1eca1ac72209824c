"""How a broker fails: the event that its operator reads, and the error that its caller catches."""

import logging

from semel.log.broker.events import Events
from semel.log.core.slots import BrokenHistory
from semel.log.replica.writer import Fenced
from semel.log.storage.journal import Damaged
from semel.log.storage.log import Torn
from semel.log.store import StoreError


class BrokerFailed(Exception):
    """The broker had to stop, usually because the disk failed; the message says why."""


class BrokerFenced(BrokerFailed):
    """Another broker on the same store has taken over; this one may be started again."""


class BrokerCutOff(BrokerFenced):
    """The same, and this broker had given its clients up in time, because it was cut off from the store. It may begin
    again in the same process: the process has not stood still.
    """


def tell_of_failure(events: Events, error: BaseException, *, was_cut_off: bool) -> BrokerFailed:
    """Log why the broker stops serving, and return the error for the broker's caller."""
    if isinstance(error, Fenced | StoreError | BrokenHistory):
        reason = str(error)
    elif isinstance(error, OSError | Damaged):
        reason = f"the disk failed: {error}"
    else:
        reason = f"a fault of its own: {error if isinstance(error, Torn) else repr(error)}"
    # The message of a torn log says which change failed, so an operator does not need the traceback.
    mistake = None if isinstance(error, OSError | Damaged | Torn | Fenced | StoreError | BrokenHistory) else error
    if was_cut_off and isinstance(error, Fenced):
        events.tell(logging.WARNING, "gave_way", reason=f"{reason}; this one begins again, and stands by")
    else:
        events.tell(logging.CRITICAL, "stopped_serving", error=mistake, reason=reason)
    events.tell(logging.DEBUG, "stopped_where", error=error)
    if not isinstance(error, Fenced):
        return BrokerFailed(reason)
    return BrokerCutOff(reason) if was_cut_off else BrokerFenced(reason)
