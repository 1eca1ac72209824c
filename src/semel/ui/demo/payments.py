"""The payments: each can be recognised by its number wherever it is stored, and the same seed makes the same payments.

Eight tills number their payments from 0 on. So the payments alone show which one is stored twice and which one is
missing. This file must never know which client sends them, or where they end up.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

TILLS: Final = 8
PARTITIONS: Final = 4
ACCOUNTS: Final = 500
CENTS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment, and its position in the stream."""

    position: int
    account: str
    cents: int

    @property
    def till(self) -> int:
        return self.position % TILLS

    @property
    def number(self) -> int:
        """Its number among those of its till."""
        return self.position // TILLS

    @property
    def id(self) -> str:
        return f"{self.till}-{self.number}"

    @property
    def partition(self) -> int:
        """All payments of a till are in one partition, or their order would be lost."""
        return self.till % PARTITIONS

    def encoded(self) -> bytes:
        return json.dumps(
            {
                "payment": self.id,
                "till": self.till,
                "number": self.number,
                "account": self.account,
                "cents": self.cents,
            }
        ).encode()


def payments(seed: int, count: int) -> list[Payment]:
    chance = random.Random(f"{seed}/payments")
    return [
        Payment(position, f"A{chance.randrange(ACCOUNTS):03}", chance.randint(1, CENTS_MAX))
        for position in range(count)
    ]


def copies(values: Iterable[bytes], count: int) -> list[int]:
    """How often each payment of the stream occurs in these records."""
    counts = [0] * count
    for value in values:
        payment = json.loads(value)
        counts[payment["number"] * TILLS + payment["till"]] += 1
    return counts
