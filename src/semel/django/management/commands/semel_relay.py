"""`manage.py semel_relay`: publishes the messages of committed transactions until it is told to end, as `semel outbox
run` does. It must have connections of its own: its threads publish beside the application."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from semel.django.aliases import BOOTSTRAP, alias, engine_for, kafka
from semel.django.services import ended_by, telling
from semel.outbox import OutboxError, Relay


class Command(BaseCommand):  # type: ignore[misc]
    help = "Publish the messages that committed transactions have added, once and in order."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--database", metavar="ALIAS", help="whose outbox; by default SEMEL['ALIAS']")
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker, in place of that in SEMEL['KAFKA']")
        parser.add_argument("--shards", type=int, metavar="N", help="how many shards publish side by side")
        parser.add_argument("--drain", action="store_true", help="publish the messages that wait now, and end")

    def handle(self, *_words: str, **options: Any) -> None:
        using, settings = options["database"] or alias(), kafka(options["bootstrap"])
        engine = engine_for(using)
        try:
            relay = Relay(engine, settings, shards=options["shards"])
            first = f"the outbox of {using!r} is published to {settings[BOOTSTRAP]}"
            with telling("semel.outbox", self.stderr, first), ended_by(relay.stop):
                (relay.drain if options["drain"] else relay.run)()
        except OutboxError as error:
            raise CommandError(str(error)) from error
        finally:
            engine.dispose()
        self.stdout.write(f"{relay.progress().messages} messages published")
