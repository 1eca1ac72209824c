"""`semel outbox`: runs the relay of an outbox, shows its progress, and handles messages that the broker refused.

While it runs, it reports to standard error: that it publishes, that a broker or the database is away or has come back,
which messages were put aside, and on a terminal its progress.
"""

import argparse
import contextlib
import gc
import json
import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from semel.service.options import add_options
from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.display import LINE_END, NOTHING, as_field, print_table, printable, terminal_columns, time_shown
from semel.ui.cli.errors import Failure
from semel.ui.cli.services import BOOTSTRAP, add_kafka, kafka_of, serving
from semel.ui.cli.subcommands import add_subcommand, seconds

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from semel.outbox import Relay, Status
    from semel.outbox.quarantine import RefusedMessage

EXAMPLE: Final = """  semel outbox run --database postgresql://host/app --bootstrap 127.0.0.1:9092
  semel outbox status --database postgresql://host/app
  semel outbox quarantine drop 17 --database postgresql://host/app"""

_SHOW_EVERY_SECONDS: Final = 0.2
# Begins the progress line on a terminal again.
_LINE_START: Final = "\r\x1b[K"


def configure(parser: argparse.ArgumentParser) -> None:
    things = parser.add_subparsers(dest="thing", metavar="run|status|quarantine|renew", required=True)
    _configure_run(_subcommand(things, "run", "publish the messages of committed transactions, once and in order"))
    own = _subcommand(things, "status", "show how many messages wait, since when, and which relay has each shard")
    own.add_argument("--json", action="store_true", help="as one JSON object")
    own = _subcommand(
        things,
        "renew",
        "forget the progress in the log, so that the next relay begins again: on another cluster, or after a restore",
    )
    own.add_argument(
        "--at-hand",
        choices=("send", "drop"),
        help="what to do with messages that may or may not be in the log",
    )
    quarantine = add_subcommand(things, "quarantine", "messages that the broker refused, or that cannot be records")
    actions = quarantine.add_subparsers(dest="action", metavar="list|retry|drop", required=True)
    own = _subcommand(actions, "list", "show these messages, and why each was put aside")
    own.add_argument("--json", action="store_true", help="one JSON object to a line, with the whole message")
    for name, purpose in (
        ("retry", "have the relay retry messages before it sends those that wait for them"),
        ("drop", "delete messages: they never get into the log, and the relay sends those that waited for them"),
    ):
        own = _subcommand(actions, name, purpose)
        own.add_argument("numbers", type=int, nargs="*", metavar="NUMBER", help="as `list` shows them")
        own.add_argument("--all", action="store_true", help="all messages in the quarantine")


def _subcommand(parsers: Any, name: str, purpose: str) -> argparse.ArgumentParser:
    own = add_subcommand(parsers, name, purpose)
    add_database(own)
    return own


def _configure_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_kafka(parser)
    add(
        "--name",
        metavar="NAME",
        help="the name under which it publishes; the first relay of a database decides (outbox)",
    )
    add(
        "--shards",
        type=int,
        metavar="N",
        help="how many shards publish side by side; omit it to keep the stored number (1)",
    )
    add("--batch", type=int, metavar="N", help="messages in one transaction (2000)")
    add("--drain", action="store_true", help="publish the messages that wait now, print their number, and end")
    add(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        help="with --drain: how long to wait for a database or brokers that do not answer (60)",
    )
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    with opened(options.database) as engine:
        from semel.outbox import OutboxError

        try:
            if options.thing == "run":
                return _relay(options, engine)
            if options.thing == "status":
                return _show_status(options, engine)
            if options.thing == "renew":
                return _renew(options, engine)
            return _quarantine(options, engine)
        except OutboxError as error:
            raise Failure(str(error)) from error


# -- run ---------------------------------------------------------------------------------------------------------------


def _relay(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.outbox import Relay
    from semel.outbox.relay import DRAIN_WAIT_SECONDS
    from semel.service.life import telling
    from semel.settings import Role

    if options.wait is not None and not options.drain:
        raise Failure("--wait belongs to --drain: without --drain the relay waits as long as it takes")
    chosen = {"name": options.name, "shards": options.shards, "batch_rows": options.batch}
    kafka = kafka_of(options, Role.PRODUCER)
    relay = Relay(engine, kafka, **{name: value for name, value in chosen.items() if value is not None})
    # Freeze all objects that exist now, because they will stay. A relay that lags makes some thousand objects for
    # each batch, and would spend a third of its time collecting garbage.
    gc.freeze()
    if options.drain:
        with _shown(relay), telling("outbox", sys.stderr, formatter=_Line(), level=logging.WARNING):
            published = relay.drain(DRAIN_WAIT_SECONDS if options.wait is None else options.wait)
        print(f"{published} messages published")
        return 0
    what = f"publishes to {kafka[BOOTSTRAP]}"
    with _shown(relay), serving(relay, "outbox", what, options, engine, _Line()) as grace:
        relay.run(stands_by=True, stop_seconds=grace)
    return 0


@contextlib.contextmanager
def _shown(relay: "Relay") -> Iterator[None]:
    """On a terminal, with a progress line below what is logged."""
    ended = threading.Event()
    showing = threading.Thread(target=_show_progress, args=(relay, ended), daemon=True)
    if sys.stderr.isatty():
        showing.start()
    try:
        yield
    finally:
        ended.set()
        if showing.is_alive():
            showing.join()


class _Line(logging.Formatter):
    """Writes a message in place of the progress line. Texts of the broker may contain a stranger's characters."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_LINE_START if sys.stderr.isatty() else ''}semel: {printable(super().format(record), keep=LINE_END)}"


def _show_progress(relay: "Relay", ended: threading.Event) -> None:
    while not ended.wait(_SHOW_EVERY_SECONDS):
        progress = relay.progress()
        line = f"{progress.messages} messages published"
        if progress.waits_for is not None:
            line += f"; waiting for {progress.waits_for}"
        elif progress.messages:
            line += f", the last one {progress.lag_ms} ms after it was added"
        shown = f"{_LINE_START}semel: {printable(line)}"[: terminal_columns() + len(_LINE_START) - 1]
        print(shown, end="", file=sys.stderr, flush=True)
    print(_LINE_START, end="", file=sys.stderr, flush=True)


# -- status ------------------------------------------------------------------------------------------------------------


def _show_status(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.database.clock import now_ms
    from semel.outbox import status

    outbox = status(engine)
    if options.json:
        shards = [shard._asdict() for shard in outbox.shards]
        print(json.dumps({**outbox._asdict(), "shards": shards}))
    else:
        _print_status(outbox, now_ms())
    return 0


def _print_status(outbox: "Status", now_ms: int) -> None:
    oldest = ""
    if outbox.oldest_added_at_ms is not None:
        oldest = f", the oldest for {max(now_ms - outbox.oldest_added_at_ms, 0) / 1000:.1f} s"
    print(f"{outbox.waiting} messages wait{oldest}")
    if outbox.quarantined:
        print(f"{outbox.quarantined} of them were put aside, and {outbox.held_up} wait for those")
    if outbox.name is None:
        print("no relay has begun yet")
        return
    print(f"relayed as {outbox.name!r}")
    rows = [("SHARD", "BATCHES", "AT HAND", "RELAY", "SINCE")]
    for shard in outbox.shards:
        at_hand = "yes" if shard.is_at_hand else "no"
        rows.append(
            (str(shard.shard), str(shard.batches), at_hand, shard.owner or NOTHING, time_shown(shard.owned_since_ms))
        )
    print_table(rows)


def _renew(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.outbox.layout import AtHand, renew

    with engine.begin() as connection:
        renew(connection, None if options.at_hand is None else AtHand(options.at_hand))
    print("the next relay begins again")
    return 0


# -- quarantine --------------------------------------------------------------------------------------------------------


def _quarantine(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.outbox import quarantine

    with engine.begin() as connection:
        messages = quarantine.refused_messages(connection)
        if options.action == "list":
            _show_refused(messages, as_json=options.json)
            return 0
        if bool(options.numbers) == options.all:
            raise Failure("name the messages by their numbers, or pass --all")
        known = [message.number for message in messages]
        numbers = known if options.all else list(dict.fromkeys(options.numbers))
        # Here, because a database takes no number of more than 64 bits.
        for number in set(numbers).difference(known):
            raise Failure(f"there is no {number} in the quarantine: semel outbox quarantine list shows all")
        change = quarantine.retry if options.action == "retry" else quarantine.drop
        change(connection, numbers)
    print(f"{len(numbers)} {'wait to be tried again' if options.action == 'retry' else 'dropped'}")
    return 0


def _show_refused(messages: "Sequence[RefusedMessage]", *, as_json: bool) -> None:
    if as_json:
        for message in messages:
            fields: dict[str, object] = {}
            for name, value in message._asdict().items():
                fields |= as_field(name, value) if name in ("key", "value", "aggregate") else {name: value}
            print(json.dumps(fields))
        return
    if not messages:
        print("nothing is in the quarantine")
        return
    rows = [("NUMBER", "TOPIC", "AGGREGATE", "BEHIND", "SINCE", "REASON")]
    rows += [
        (
            str(message.number),
            message.topic,
            NOTHING if message.aggregate is None else message.aggregate.decode(errors="backslashreplace"),
            str(message.behind),
            time_shown(message.refused_at_ms),
            message.reason,
        )
        for message in messages
    ]
    print_table(rows)
