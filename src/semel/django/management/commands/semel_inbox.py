"""`manage.py semel_inbox`: consumes the events of one consumer until it is told to end. It must run no handler twice at
once: what it holds is finished first."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from semel.django.aliases import BOOTSTRAP, engine_for, kafka, place_of
from semel.django.inbox import Handler, handlers
from semel.inbox import LoopFailed
from semel.service.life import serving
from semel.service.options import ServiceRefused, add_options, options_of


class Command(BaseCommand):  # type: ignore[misc]
    help = "Consume the events of a consumer: each has its effect once."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("consumer", nargs="?", help="whose events; needed if there are several consumers")
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker, in place of that in SEMEL['KAFKA']")
        add_options(parser)

    def handle(self, *_words: str, **options: Any) -> None:
        found, settings = _chosen(options["consumer"]), kafka(options["bootstrap"])
        topics = ", ".join(found.topics)
        what = f"{found.consumer} consumes {topics} from {settings[BOOTSTRAP]}; database {place_of(found.using)}"
        # For the figures alone: the loop works on the connection of the ORM.
        engine = engine_for(found.using)
        try:
            with serving(found.inbox, "inbox", what, options_of(options), engine=engine, stream=self.stderr):
                found.run(settings)
        except (LoopFailed, ServiceRefused) as error:
            raise CommandError(str(error)) from error
        finally:
            engine.dispose()
        counts = found.inbox.counts
        self.stdout.write(
            f"{counts.first_time} events done, {counts.duplicate} duplicates, {counts.quarantined} put aside"
        )


def _chosen(consumer: str | None) -> Handler:
    known = handlers()
    names = ", ".join(sorted(known)) or "none: write @inbox.handler in a module `inbox` of an application"
    if consumer is None and len(known) == 1:
        return next(iter(known.values()))
    if consumer not in known:
        asked = "name a consumer" if consumer is None else f"there is no consumer {consumer!r}"
        raise CommandError(f"{asked}; there are {names}")
    return known[consumer]
