"""`manage.py semel_reap`: deletes expired keys of requests, and claims of events that are older than their retention;
by a timer of the system, or as a service. It must never delete what somebody holds."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from semel import http, inbox
from semel.django.aliases import alias, engine_for, place_of
from semel.django.inbox import handlers
from semel.service.life import serving
from semel.service.options import ServiceRefused, add_options, options_of
from semel.service.repeated import Repeated


class Command(BaseCommand):  # type: ignore[misc]
    help = "Delete expired keys, and the claims of events that are older than their retention."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--database", metavar="ALIAS", help="in which database; by default SEMEL['ALIAS']")
        parser.add_argument("--every", type=float, metavar="SECONDS", help="go on, and do this every so many seconds")
        add_options(parser)

    def handle(self, *_words: str, **options: Any) -> None:
        using = options["database"] or alias()
        engine = engine_for(using)

        def reap() -> str:
            keys = http.reap(engine)
            claims = sum(
                inbox.reap(engine, consumer=found.consumer, retention_ms=found.retention_ms)
                for found in handlers().values()
                if found.using == using
            )
            return f"{keys} keys and {claims} claims deleted"

        try:
            if options["every"] is None:
                self.stdout.write(reap())
                return
            service, what = Repeated(reap, options["every"]), f"deletes what has expired; database {place_of(using)}"
            with serving(service, "reaper", what, options_of(options), engine=engine, stream=self.stderr):
                service.run()
        except ServiceRefused as error:
            raise CommandError(str(error)) from error
        finally:
            engine.dispose()
