"""The plan of a trial, made from a seed before it starts: which client sends which request how, and which process is
killed when.

It does no IO. The same seed gives the same plan; how processes and network interleave differs from run to run.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

CALLERS: Final = ("shop-berlin", "shop-paris")
ACCOUNTS: Final = tuple(f"account-{number}" for number in range(50))
# More than the service accepts: one request of twenty is refused, and the refusal is an answer like any other.
REFUSED_SHARE: Final = 0.05
REFUSED_CENTS: Final = 1_000_000
ACCEPTED_CENTS_MAX: Final = 100_000
AT_ONCE_SHARE: Final = 0.05
LOST_SHARE: Final = 0.15
AGAIN_SHARE: Final = 0.05
# How long a client waits before it drops the connection: from before the service has read the request to after it is
# done. A quarter of these clients do not wait at all: on a busy machine the others may all see their answer first.
LOST_SECONDS_MAX: Final = 0.03
STRUCK_SECONDS_MAX: Final = 0.05


class Manner(StrEnum):
    PLAIN = "once, and again until there is an answer"
    AT_ONCE = "three times at the same moment"
    LOST = "the connection is cut when it was sent, and the client asks again"


@dataclass(frozen=True, slots=True)
class Request:
    caller: str
    key: str
    payer: str
    payee: str
    amount_cents: int
    manner: Manner
    lost_after_seconds: float

    @property
    def status(self) -> int:
        """The status that the service has to answer."""
        return 201 if self.amount_cents <= ACCEPTED_CENTS_MAX else 403


@dataclass(frozen=True, slots=True)
class Kill:
    victim: str
    # The time after a payment has arrived in the ledger.
    after_seconds: float


Step: TypeAlias = Request | Kill


def plan(seed: int, requests: int, victims: Sequence[str], kills: int) -> list[Step]:
    """`requests` different requests, some of which come twice, with `kills` kills of each victim spread evenly among
    them."""
    chance = random.Random(seed)
    placed: list[tuple[float, Step]] = [(number, _request(number, chance)) for number in range(requests)]
    again = chance.sample(placed, round(requests * AGAIN_SHARE))
    placed += [(chance.uniform(place, requests), request) for place, request in again]
    struck = [victim for _ in range(kills) for victim in chance.sample(victims, len(victims))]
    for number, victim in enumerate(struck, start=1):
        kill = Kill(victim, chance.uniform(0, STRUCK_SECONDS_MAX))
        placed.append((requests * number / (len(struck) + 1), kill))
    return [step for _, step in sorted(placed, key=lambda one: one[0])]


def _request(number: int, chance: random.Random) -> Request:
    payer, payee = chance.sample(ACCOUNTS, 2)
    refused = chance.random() < REFUSED_SHARE
    amount_cents = REFUSED_CENTS if refused else chance.randint(1, ACCEPTED_CENTS_MAX)
    shares = (1 - AT_ONCE_SHARE - LOST_SHARE, AT_ONCE_SHARE, LOST_SHARE)
    return Request(
        # Both callers use the same keys, and neither must ever get the other's answers.
        caller=CALLERS[number % 2],
        key=f"payment-{number // 2}",
        payer=payer,
        payee=payee,
        amount_cents=amount_cents,
        manner=chance.choices(tuple(Manner), shares)[0],
        lost_after_seconds=max(0.0, chance.uniform(-LOST_SECONDS_MAX / 3, LOST_SECONDS_MAX)),
    )
