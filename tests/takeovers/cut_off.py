"""Brokers that are cut off from their store, or stand still, with real clients: for how long no message of a client was
acknowledged, and what was lost or doubled.

    PYTHONPATH=tests python -m takeovers.cut_off [--store NAME] [--client NAME] [--how HOW] [--times N]

Exit code 1 if a message was lost or doubled, or an outage was longer than the lease and 1.5 seconds: from the cut, or
from the store's return where both brokers were cut off.
"""

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from bench.peers.process import SkipReason
from confluent_kafka.admin import AdminClient, ClusterMetadata

from cut_line import CutLine, State
from eventually import eventually
from semel.testing.served import ServedBroker
from takeover_pair import FENCED, values_of
from takeovers.senders import CLIENTS, TOPIC, Acknowledged, Sender
from takeovers.servers import SERVERS, StoreServer

LEASE_SECONDS: Final = 3
OUTAGE_SECONDS_MAX: Final = LEASE_SECONDS + 1.5
CUT_SECONDS: Final = 12.0
SETTLE_SECONDS: Final = 4.0
# What happens: to the lines of which brokers, and for how long.
HOWS: Final[dict[str, tuple[State, bool]]] = {
    "vanishes": ("vanishes", False),
    "refuses": ("refuses", False),
    "answers after 20 s": ("late", False),
    "loses half": ("half", False),
    "both cut off for 12 s": ("vanishes", True),
}
STANDS_STILL: Final = "stands still"


class CutPair:
    """Two brokers, each with a line of its own to their store."""

    def __init__(self, directory: Path, url: str) -> None:
        self.lines = [] if url.startswith("file:") else [CutLine(url, seed).start() for seed in range(2)]
        urls = [line.url for line in self.lines] or [url, url]
        self.brokers = [
            ServedBroker(directory / f"disk{n}", f"--store={urls[n]}", f"--lease-seconds={LEASE_SECONDS}")
            for n in range(2)
        ]
        for broker in self.brokers:
            broker.start()
        # A client that begins before the standby is named may not know it for minutes.
        assert eventually(lambda: len(self._metadata().brokers) == len(self.brokers))

    def _metadata(self) -> ClusterMetadata:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=30)

    @property
    def active(self) -> int:
        """Which one is active, as Metadata says."""
        metadata = self._metadata()
        leader = metadata.brokers[metadata.controller_id]
        return [broker.bootstrap for broker in self.brokers].index(f"{leader.host}:{leader.port}")

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def supervise(self) -> None:
        """Start what has ended with code 3, as a supervisor does."""
        for broker in self.brokers:
            if broker.exit_code == FENCED:
                broker.wait()
                broker.start()

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for line in self.lines:
            line.stop()


@contextmanager
def cut_pair(directory: Path, open_server: Callable[[], StoreServer] | None) -> Iterator[CutPair]:
    server = None if open_server is None else open_server()
    try:
        pair = CutPair(directory, f"file://{directory}/store" if server is None else server.url)
        try:
            yield pair
        finally:
            pair.end()
    finally:
        if server is not None:
            server.stop()


class Outcome(NamedTuple):
    outage_seconds: float
    lost: int
    doubled: int


def cut_off(pair: CutPair, how: str, client: Sender, random: Random) -> Outcome:
    """Disturb the pair once under this client."""
    state, is_both = HOWS.get(how, ("passes", False))
    stop, acknowledged = threading.Event(), list[Acknowledged]()
    sending = threading.Thread(target=client, args=(pair.bootstrap, stop, acknowledged), daemon=True)
    sending.start()
    assert eventually(lambda: len(acknowledged) > 20)
    threading.Event().wait(random.uniform(1, 3))
    since = time.monotonic()
    if how == STANDS_STILL:
        stopped = pair.brokers[random.randrange(2)]
        stopped.pause()
        threading.Event().wait(random.choice((random.uniform(0.1, 3), random.uniform(3, 12))))
        stopped.resume()
    else:
        lines = pair.lines if is_both else [pair.lines[pair.active]]
        for line in lines:
            line.set(state)
        threading.Event().wait(CUT_SECONDS)
        for line in lines:
            line.set("passes")
        if is_both:
            since = time.monotonic()
    came = len(acknowledged)
    threading.Event().wait(SETTLE_SECONDS)
    pair.supervise()
    assert eventually(lambda: len(acknowledged) > came + 20)
    stop.set()
    sending.join(120)
    times = [since, *(one.at for one in acknowledged if one.at >= since)]
    outage = max(later - earlier for earlier, later in pairwise(times))
    stored = Counter(values_of(pair.bootstrap, TOPIC))
    lost = sum(one.value not in stored for one in acknowledged)
    return Outcome(outage, lost, sum(stored.values()) - len(stored))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make cut-off", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--store", action="append", choices=SERVERS, help="on this one; may be given again (all)")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="with this one; may be given again (all)")
    parser.add_argument("--how", action="append", choices=(*HOWS, STANDS_STILL), help="what happens (all)")
    parser.add_argument("--times", type=int, default=5, metavar="N", help="how often, for each client (5)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="what chance begins from (7)")
    options = parser.parse_args(arguments)
    # Clients tell of each attempt to connect.
    logging.disable()
    random, is_broken = Random(options.seed), False
    print(f"{'store':<12} {'what happens':<24} {'client':<26} {'longest outage':>14} {'lost':>6} {'doubled':>8}")
    for store in options.store or SERVERS:
        for how in options.how or (*HOWS, STANDS_STILL):
            if store == "directory" and how != STANDS_STILL:
                continue
            for client in options.client or CLIENTS:
                outcomes = []
                try:
                    for _ in range(options.times):
                        with (
                            tempfile.TemporaryDirectory(prefix="semel-cut-off-") as directory,
                            cut_pair(Path(directory), SERVERS[store]) as pair,
                        ):
                            outcomes.append(cut_off(pair, how, CLIENTS[client], random))
                except SkipReason as missing:
                    print(f"{store}: left out: {missing}")
                    break
                longest = max(one.outage_seconds for one in outcomes)
                lost, doubled = sum(one.lost for one in outcomes), sum(one.doubled for one in outcomes)
                print(f"{store:<12} {how:<24} {client:<26} {longest:>12.1f} s {lost:>6} {doubled:>8}", flush=True)
                is_broken |= bool(lost or doubled) or longest > OUTAGE_SECONDS_MAX
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
