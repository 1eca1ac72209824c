"""`semel inbox`: consumes events with a function of the application; shows the quarantine of an inbox, has messages
tried again, and drops them.

The consumer's own loop tries a message again, in its process. The actions on the quarantine read and mark rows, and
must never run a handler.
"""

import argparse
import json
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from semel.service.options import add_options
from semel.ui.cli.databases import add_database, opened
from semel.ui.cli.display import NOTHING, as_field, print_table, time_shown
from semel.ui.cli.errors import Failure
from semel.ui.cli.services import BOOTSTRAP, add_kafka, add_sessions, database_of, imported, kafka_of, serving
from semel.ui.cli.subcommands import add_subcommand

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from semel.inbox import Message
    from semel.inbox.quarantine import QuarantinedEvent

EXAMPLE: Final = """  semel inbox run shop.events:book --consumer billing --topic payments --database postgresql://host/app
  semel inbox quarantine list --database sqlite:///app.db
  semel inbox quarantine retry 17 18 --database postgresql://host/app
  semel inbox quarantine drop --all --consumer billing --database sqlite:///app.db"""

_HEADER: Final = "header:"


def configure(parser: argparse.ArgumentParser) -> None:
    things = parser.add_subparsers(dest="thing", metavar="run|quarantine", required=True)
    _configure_run(add_subcommand(things, "run", "have a function handle the events of topics, each once"))
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


def _configure_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "handler",
        metavar="MODULE:FUNCTION",
        help="takes a connection or session in the transaction of the claim, and the message",
    )
    add_database(parser)
    add_sessions(parser, "the handler gets a session")
    add_kafka(parser)
    add("--consumer", required=True, metavar="NAME", help="whose claims; also the group, unless the settings name one")
    add("--topic", required=True, action="append", metavar="NAME", help="consume this topic; any number of times")
    add(
        "--identity",
        default=_HEADER + "id",
        metavar="WHAT",
        help="where an event has its producer's id: header:NAME, or MODULE:FUNCTION that takes a message (header:id)",
    )
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    with opened(options.database) as engine:
        if options.thing == "run":
            return _consume(options, engine)
        from semel.inbox.quarantine import Unsettled

        try:
            return _run(options, engine)
        except Unsettled as error:
            raise Failure(str(error)) from error


def _consume(options: argparse.Namespace, engine: "Engine") -> int:
    from semel.inbox import Inbox, LoopFailed, UnusableId
    from semel.settings import Role

    kafka = {"group.id": options.consumer, **kafka_of(options, Role.CONSUMER)}
    what = f"{options.consumer} consumes {', '.join(options.topic)} from {kafka[BOOTSTRAP]}"
    try:
        inbox = Inbox(database_of(options, engine), consumer=options.consumer, identity=_identity(options.identity))
        handler = _function(options.handler)
        with serving(inbox, "inbox", what, options, engine):
            inbox.run(handler, kafka, options.topic)
    except (LoopFailed, UnusableId) as error:
        raise Failure(str(error)) from error
    counts = inbox.counts
    print(f"{counts.first_time} events done, {counts.duplicate} duplicates, {counts.quarantined} put aside")
    return 0


def _identity(text: str) -> "Callable[[Message], Any]":
    if not text.startswith(_HEADER):
        return _function(text)
    name = text.removeprefix(_HEADER)

    def identity(message: "Message") -> str:
        value = message.header(name)
        if value is None:
            raise LookupError(f"there is no header {name!r}")
        return value.decode()

    return identity


def _function(text: str) -> "Callable[..., Any]":
    module, _, name = text.partition(":")
    found: Callable[..., Any] | None = imported(module).get(name) if module and name else None
    if not callable(found):
        raise Failure(f"{text!r} is no function: write MODULE:FUNCTION")
    if iscoroutinefunction(found):
        raise Failure(f"{text} is a coroutine function: run an AsyncInbox in a program of your own")
    return found


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
