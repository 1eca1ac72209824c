"""`python -m bench`: semel beside its peers, one table. Contenders run one at a time and take turns, round after round;
the figure is the median. It installs the peers it can, says of the rest why not, and leaves nothing running."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException

from bench import client_limit
from bench import results as reporting
from bench.clients import LoadFailed
from bench.measures import AREAS, MEASURES, Area
from bench.measures.measure import FULL, MISSING, QUICK, Measure, Scale
from bench.measures.produce import ProduceKilobyte
from bench.peers.kafka import Kafka
from bench.peers.mock import Mock
from bench.peers.process import BrokerFailed, Contender, SkipReason
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu
from bench.results import Results
from semel.client.errors import LogError

PEERS: Mapping[str, Callable[[], Contender]] = {"kafka": Kafka, "tansu": Tansu}
# These run whichever peers are chosen.
OWN: Mapping[str, Callable[[], Contender]] = {"semel": Semel, "mock": Mock}
BROKERS: Mapping[str, Callable[[], Contender]] = {**OWN, **PEERS}
T = TypeVar("T")

ROUNDS_DEFAULT = 3
PAGE = Path(__file__).parent.parent / "docs/BENCHMARKS.md"
TIME_FOR_DISK_SECONDS = 1.0
REASON_CHARACTERS_MAX = 300


def main() -> int:
    load_before = os.getloadavg()
    arguments = parse(load_before[0])
    if arguments.reword:
        of_page = reporting.sections(PAGE.read_text())
        new = [reporting.reworded(of_page[area.title], area.measures) for area in AREAS.values()]
        PAGE.write_text(reporting.as_page(AREAS, new))
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    areas = chosen_areas(arguments.area or [], arguments.only or [])
    measures = [measure for area in areas for measure in area.measures]
    results = Results()
    failed: set[str] = set()
    taking_part = {label.split()[0] for measure in measures for label in measure.contenders}
    try:
        versions = install([name for name in (*OWN, *arguments.peers) if name in taking_part], results)
        for measure in measures:
            failed |= run_measure(measure, arguments.rounds, arguments.scale, list(versions), results)
        for measure in measures:
            if isinstance(measure, ProduceKilobyte):
                _progress("the client alone")
                results.note(run_once(Mock(), lambda mock: client_limit.describe(mock, arguments.scale)), measure)
    except KeyboardInterrupt:
        print("interrupted; brokers stopped, their data removed", file=sys.stderr)
        return 130
    facts = reporting.facts_of_this_run(arguments.rounds, versions.values(), load_before)
    print(reporting.as_text(measures, results, facts))
    command = f"make bench ARGS={shlex.quote(' '.join(sys.argv[1:]))}"
    if arguments.write is not None:
        write(arguments.write, {area.title: reporting.as_section(area, command, results, facts) for area in areas})
    return 1 if any(label.startswith("semel") for label in failed) else 0


def chosen_areas(names: Sequence[str], only: Sequence[str]) -> list[Area]:
    """The areas with these names, and of others the measures that are named; all of them, if nothing is named."""
    areas = []
    for name, area in AREAS.items():
        whole = name in names or not (names or only)
        measures = area.measures if whole else tuple(measure for measure in area.measures if measure.name in only)
        if measures:
            areas.append(area._replace(measures=measures))
    return areas


def write(page: Path, new: Mapping[str, str]) -> None:
    """The page below docs keeps the sections of areas that were not measured; another page has the new ones alone."""
    found = {**reporting.sections(page.read_text()), **new} if page == PAGE else new
    page.write_text(reporting.as_page(AREAS, [found[area.title] for area in AREAS.values() if area.title in found]))


def parse(load_before: float) -> argparse.Namespace:
    names = [measure.name for measure in MEASURES]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Run semel, Apache Kafka and Tansu one after another under the same client and print one table.",
        epilog="example: python -m bench --only latency --rounds 3",
    )
    parser.add_argument("--only", action="append", choices=names, help="run this measure only; may be given again")
    parser.add_argument("--area", action="append", choices=AREAS, help="run this area only; may be given again")
    parser.add_argument("--rounds", type=int, default=None, help=f"rounds of each measure (default {ROUNDS_DEFAULT})")
    parser.add_argument("--quick", action="store_true", help="tiny loads, one round: does the bench work at all?")
    parser.add_argument(
        "--audit-ids", type=int, metavar="N", help="audit so many ids (default 10^8; 2 * 10^5 if quick)"
    )
    parser.add_argument(
        "--store-bytes",
        type=int,
        metavar="N",
        help="how much is in the store of new-machine (default 10^10; 1.5 * 10^8 if quick)",
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="who runs beside semel (default %(default)s)")
    parser.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=PAGE,
        metavar="PAGE",
        help="write the tables to this page too; without PAGE, to the sections of these areas in docs/BENCHMARKS.md",
    )
    parser.add_argument(
        "--reword",
        action="store_true",
        help="measure nothing: write the reasons and explanations in docs/BENCHMARKS.md again, and leave the figures",
    )
    arguments = parser.parse_args()
    arguments.peers = [name for name in arguments.peers.split(",") if name]
    unknown = set(arguments.peers) - set(PEERS)
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))} (there are {', '.join(PEERS)})")
    sizes = {name: getattr(arguments, name) for name in ("audit_ids", "store_bytes")}
    if arguments.write is not None and arguments.write.resolve() == PAGE:
        arguments.write = PAGE
        if arguments.quick or arguments.only or any(sizes.values()):
            parser.error(
                f"{PAGE.name} has the figures of whole areas: with --quick, --only or a size name another page"
            )
        if why_not := reporting.why_not_a_commit(reporting.commit()):
            parser.error(f"{PAGE.name} has the figures of a commit, and {why_not}")
        if why_not := reporting.why_not_quiet(load_before):
            parser.error(f"{PAGE.name} has the figures of a quiet machine, and {why_not}")
    arguments.rounds = arguments.rounds or (1 if arguments.quick else ROUNDS_DEFAULT)
    arguments.scale = QUICK if arguments.quick else FULL
    chosen = {name: size for name, size in sizes.items() if size is not None}
    arguments.scale = dataclasses.replace(arguments.scale, **chosen)
    return arguments


def install(names: Sequence[str], results: Results) -> dict[str, str]:
    """Fetch who is not there yet; returns the version of each peer that can run, by its name."""
    versions = {}
    for name in names:
        broker = BROKERS[name]()
        try:
            broker.install()
        except SkipReason as reason:
            results.note(f"{name} is skipped: {reason}")
        else:
            versions[name] = broker.version()
    return versions


def run_measure(measure: Measure, rounds: int, scale: Scale, peers: Sequence[str], results: Results) -> set[str]:
    """Fill the results with the figures of every round; returns the contenders that failed."""
    contenders = {label: make for label, make in measure.contenders.items() if label.split()[0] in peers}
    for note in measure.notes:
        results.note(note, measure)
    failed: set[str] = set()
    rounds = min(rounds, measure.rounds_max or rounds)
    for number in range(1, rounds + 1):
        for label, make in contenders.items():
            if label in failed:
                continue
            _progress(f"{measure.name}: {label}, round {number} of {rounds}")
            try:
                figures = run_once(make(), lambda broker: measure.run(broker, scale))
            except (BrokerFailed, LoadFailed, LogError, SkipReason, KafkaException, OSError) as reason:
                failed.add(label)
                _progress(str(reason))
                results.note(
                    f"{measure.name}, {label}, failed in round {number}: {str(reason)[:REASON_CHARACTERS_MAX]}", measure
                )
            else:
                results.add(measure, label, figures)
                if figures.get(MISSING, 0) > 0:
                    results.note(f"{measure.name}, {label}: messages acknowledged and then not there", measure)
                    if label.startswith("semel"):
                        failed.add(label)
                _progress("    " + ", ".join(f"{metric} {value:,.2f}" for metric, value in figures.items()))
    return failed


def run_once(broker: Contender, load: Callable[[Contender], T]) -> T:
    # What the contender before left unwritten must not be written on this one's time.
    os.sync()
    time.sleep(TIME_FOR_DISK_SECONDS)
    try:
        return load(broker)
    finally:
        broker.stop()


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
