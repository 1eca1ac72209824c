"""The ledger: books each payment once, as two entries that add up. Run it with `python -m payments.ledger`.

The claim of the event commits with the entries, and the offset is committed to the broker after that. If the ledger is
killed in between, it gets the event again, and finds that it was booked.
"""

import json
import logging
import os
import signal
import threading
from typing import Any, Final

from sqlalchemy import Connection, insert

from payments.tables import LEDGER_DATABASE, entries
from semel.database import engine_of
from semel.inbox import Inbox, Message

KAFKA: Final = {
    "bootstrap.servers": os.environ.get("BOOTSTRAP", "127.0.0.1:9092"),
    "group.id": "ledger",
    # Records of a relay's transaction that did not commit are no events.
    "isolation.level": "read_committed",
    # Short, so that the consumer after a killed one does not wait long.
    "session.timeout.ms": 6000,
}
TOPICS: Final = ("payments",)
REPORT_EVERY_SECONDS: Final = 1.0

logger = logging.getLogger("ledger")


def event_of(message: Message) -> dict[str, Any]:
    """If this raises, the inbox puts the message aside: `semel inbox quarantine list` shows it."""
    event: dict[str, Any] = json.loads(message.value or b"")
    return event


def book(connection: Connection, message: Message) -> None:
    event = event_of(message)
    payment, amount_cents = event["id"], event["amount_cents"]
    debit = {"payment": payment, "account": event["payer"], "debit_cents": amount_cents, "credit_cents": 0}
    credit = {"payment": payment, "account": event["payee"], "debit_cents": 0, "credit_cents": amount_cents}
    connection.execute(insert(entries), [debit, credit])


inbox = Inbox(engine_of(LEDGER_DATABASE), consumer="ledger", identity=lambda message: event_of(message)["event"])
ended = threading.Event()


def report() -> None:
    """Log the counts: from time to time, and at the end."""
    is_last = False
    said = None
    while not is_last:
        is_last = ended.wait(REPORT_EVERY_SECONDS)
        counts = inbox.counts
        if counts != said:
            logger.info("first_time=%d duplicate=%d quarantined=%d", *counts[:3])
            said = counts


def stop(*_: object) -> None:
    """Stop after the present message, whose offset is then committed."""
    inbox.stop()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        inbox.run(book, KAFKA, TOPICS)
    finally:
        ended.set()
        reporter.join()


if __name__ == "__main__":
    main()
