"""`manage.py semel_relay`: publishes the messages of committed transactions until it is told to end, as `semel outbox
run` does, and sends the tasks among them to Celery. It must have connections of its own: its threads publish beside the
application."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from semel.django.aliases import BOOTSTRAP, alias, engine_for, kafka, place_of, sends
from semel.outbox import OutboxError, Relay
from semel.service.life import serving
from semel.service.options import ServiceRefused, add_options, options_of


class Command(BaseCommand):  # type: ignore[misc]
    help = "Publish the messages that committed transactions have added, once and in order."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--database", metavar="ALIAS", help="whose outbox; by default SEMEL['ALIAS']")
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker, in place of that in SEMEL['KAFKA']")
        parser.add_argument("--shards", type=int, metavar="N", help="how many shards publish side by side")
        parser.add_argument("--drain", action="store_true", help="publish the messages that wait now, and end")
        add_options(parser)

    def handle(self, *_words: str, **options: Any) -> None:
        using, settings = options["database"] or alias(), kafka(options["bootstrap"])
        engine = engine_for(using)
        try:
            relay = Relay(engine, settings, send=sends(), shards=options["shards"])
            chosen, what = options_of(options), f"publishes to {settings[BOOTSTRAP]}; database {place_of(using)}"
            with serving(relay, "outbox", what, chosen, engine=engine, stream=self.stderr):
                if options["drain"]:
                    relay.drain()
                else:
                    relay.run(stands_by=True, stop_seconds=chosen.grace_seconds)
        except (OutboxError, ServiceRefused) as error:
            raise CommandError(str(error)) from error
        finally:
            engine.dispose()
        self.stdout.write(f"{relay.progress().messages} messages published")
