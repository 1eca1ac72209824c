"""Java's clients go on by themselves when one broker of a pair takes over from the other, and nothing is lost or
doubled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from semel.testing.pair import BrokerPair

Run = Callable[..., str]

RECORDS = 3_000
HOWS: tuple[Literal["kill", "stop"], ...] = ("kill", "stop", "kill")


def test_producers_go_on_over_takeovers(run_java_on_semel: Run, semel_pair: BrokerPair, topic: str) -> None:
    printed: list[str] = []

    def run() -> None:
        printed.append(run_java_on_semel("semel.Takeovers", semel_pair.bootstrap, topic, str(RECORDS)))

    java = threading.Thread(target=run)
    java.start()
    for number, how in enumerate(HOWS, start=1):
        # The topic is there when the first record is.
        while java.is_alive() and _stored(semel_pair, topic) < number * RECORDS // 5:
            java.join(0.05)
        semel_pair.take_over(how)
    java.join()
    assert printed, "Java's program failed"
    assert "errors: 0" in printed[0]
    numbers = [record.value for record in semel_pair.active.log(topic)]
    assert numbers == [b"%d" % number for number in range(RECORDS)]
    together = [record.value for record in semel_pair.active.log(f"{topic}-together", committed_only=True)]
    assert together == [b"%d.%d" % (number, part) for number in range(0, RECORDS, 10) for part in range(3)]


def _stored(pair: BrokerPair, topic: str) -> int:
    """How many records the topic has; none while it is not there."""
    try:
        return len(pair.active.log(topic))
    except KeyError:
        return 0
