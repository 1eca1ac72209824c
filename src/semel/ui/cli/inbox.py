"""`semel inbox`: shows the quarantine of an inbox, has messages tried again, and drops them.

The consumer's own loop tries a message again, in its process. This command reads and marks rows, and must never run a
handler.
"""

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.display import NOTHING, as_field, print_table, time_shown
from semel.ui.cli.errors import Failure
from semel.ui.cli.subcommands import add_subcommand

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from semel.inbox.quarantine import QuarantinedEvent

EXAMPLE: Final = """  semel inbox quarantine list --database sqlite:///app.db
  semel inbox quarantine retry 17 18 --database postgresql://host/app
  semel inbox quarantine drop --all --consumer billing --database sqlite:///app.db"""


def configure(parser: argparse.ArgumentParser) -> None:
    things = parser.add_subparsers(dest="thing", metavar="quarantine", required=True)
    purpose = "messages that were put aside, because they cannot be handled or may have been handled before"
    quarantine = add_subcommand(things, "quarantine", purpose)
    actions = quarantine.add_subparsers(dest="action", metavar="list|retry|drop", required=True)

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        own = add_subcommand(actions, name, purpose)
        add_database(own)
        own.add_argument("--consumer", metavar="NAME", help="only the messages of this consumer")
        return own

    own = action("list", "show the messages in the quarantine, and why each is there")
    own.add_argument("--json", action="store_true", help="one JSON object to a line, with the whole message")
    for name, purpose in (
        ("retry", "have the consumer's loop retry messages before it reads new ones"),
        ("drop", "never retry these messages: their events count as handled"),
    ):
        own = action(name, purpose)
        own.add_argument("numbers", type=int, nargs="*", metavar="NUMBER", help="as `list` shows them")
        own.add_argument("--all", action="store_true", help="all messages in the quarantine")
        if name == "drop":
            own.add_argument(
                "--first-version",
                type=int,
                default=1,
                metavar="N",
                help="the first version of an aggregate, as in the consumer's Inbox (1)",
            )


def run(options: argparse.Namespace) -> int:
    with opened(options.database) as engine:
        from semel.inbox.quarantine import Unsettled

        try:
            return _run(options, engine)
        except Unsettled as error:
            raise Failure(str(error)) from error


def _run(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.database.clock import now_ms
    from semel.inbox import quarantine

    with engine.begin() as connection:
        events = quarantine.open_events(connection, options.consumer)
        if options.action == "list":
            _show(events, as_json=options.json)
            return 0
        numbers = _chosen(options, events)
        if options.action == "retry":
            quarantine.retry(connection, numbers)
        else:
            quarantine.drop(connection, numbers, first_version=options.first_version, now_ms=now_ms())
    done = "marked to be tried again" if options.action == "retry" else "dropped"
    print(f"{len(numbers)} {done}")
    return 0


def _chosen(options: argparse.Namespace, events: "list[QuarantinedEvent]") -> list[int]:
    if bool(options.numbers) == options.all:
        raise Failure("name the messages by their numbers, or pass --all")
    known = [event.number for event in events]
    if options.all:
        return known
    strange = [number for number in options.numbers if number not in known]
    if strange:
        raise Failure(f"there is no {strange[0]} waiting in the quarantine: semel inbox list shows all")
    return list(dict.fromkeys(options.numbers))


def _show(events: "list[QuarantinedEvent]", *, as_json: bool) -> None:
    if as_json:
        for event in events:
            print(json.dumps(_fields(event)))
        return
    if not events:
        print("nothing is in the quarantine")
        return
    rows = [("NUMBER", "CONSUMER", "STATE", "CAUSE", "SINCE", "WHAT", "FROM", "REASON")]
    rows += [
        (
            str(event.number),
            event.consumer,
            str(event.state),
            str(event.cause),
            time_shown(event.quarantined_at_ms),
            _what(event),
            NOTHING if event.message is None else _place(event.message),
            event.reason,
        )
        for event in events
    ]
    print_table(rows)


def _what(event: "QuarantinedEvent") -> str:
    if event.version is not None:
        return f"{event.version.aggregate} version {event.version.version}"
    return event.message_id or NOTHING


def _place(message: Any) -> str:
    return f"{message.topic}[{message.partition}]@{message.offset}"


def _fields(event: "QuarantinedEvent") -> dict[str, Any]:
    fields = {**event._asdict(), "message_id": event.message_id, "message": None}
    message = event.message
    if message is not None:
        fields["message"] = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp_ms": message.timestamp_ms,
            **as_field("key", message.key),
            **as_field("value", message.value),
            "headers": [{"name": name, **as_field("value", value)} for name, value in message.headers],
        }
    return fields
