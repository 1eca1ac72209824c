"""The check of the books: one query over both databases, and its result.

The query is printed, so that anybody can run it.
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

QUERY: Final = """\
WITH booked AS (
    SELECT payment, count(*) AS entries, sum(debit_cents) AS debit_cents, sum(credit_cents) AS credit_cents
    FROM ledger.entries GROUP BY payment
)
SELECT
    (SELECT count(*) FROM payments.payments) AS payments,
    (SELECT coalesce(sum(amount_cents), 0) FROM payments.payments) AS accepted_cents,
    (SELECT coalesce(sum(debit_cents), 0) FROM ledger.entries) AS debit_cents,
    (SELECT coalesce(sum(credit_cents), 0) FROM ledger.entries) AS credit_cents,
    (SELECT count(*) FROM payments.payments JOIN booked ON payment = id
     WHERE entries = 2 AND debit_cents = amount_cents AND credit_cents = amount_cents) AS booked_once,
    (SELECT count(*) FROM booked WHERE entries > 2) AS booked_again,
    (SELECT count(*) FROM payments.payments WHERE id NOT IN (SELECT payment FROM booked)) AS not_booked,
    (SELECT count(*) FROM booked WHERE payment NOT IN (SELECT id FROM payments.payments)) AS never_accepted"""


@dataclass(frozen=True, slots=True)
class Books:
    """The result of the query."""

    payments: int
    accepted_cents: int
    debit_cents: int
    credit_cents: int
    booked_once: int
    booked_again: int
    not_booked: int
    never_accepted: int

    @property
    def are_balanced(self) -> bool:
        return (
            self.debit_cents == self.credit_cents == self.accepted_cents
            and self.booked_once == self.payments
            and self.booked_again == self.not_booked == self.never_accepted == 0
        )


def read(connection: Connection) -> Books:
    row = connection.execute(text(QUERY)).mappings().one()
    return Books(**{name: int(value) for name, value in row.items()})


def accepted(connection: Connection) -> dict[str, tuple[str, str, int]]:
    """Payer, payee and amount of each payment, by its id."""
    rows = connection.execute(text("SELECT id, payer, payee, amount_cents FROM payments.payments"))
    return {id_: (payer, payee, int(amount_cents)) for id_, payer, payee, amount_cents in rows}


def entries(connection: Connection) -> int:
    return int(connection.execute(text("SELECT count(*) FROM ledger.entries")).scalar_one())
