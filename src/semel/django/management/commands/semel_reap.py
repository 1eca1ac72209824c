"""`manage.py semel_reap`: deletes expired keys of requests, and claims of events that are older than their retention;
a timer of the system should run it. It must never delete what somebody holds."""

from typing import Any

from django.core.management.base import BaseCommand

from semel import http, inbox
from semel.django.aliases import alias, engine_for
from semel.django.inbox import handlers


class Command(BaseCommand):  # type: ignore[misc]
    help = "Delete expired keys, and the claims of events that are older than their retention."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--database", metavar="ALIAS", help="in which database; by default SEMEL['ALIAS']")

    def handle(self, *_words: str, **options: Any) -> None:
        using = options["database"] or alias()
        engine = engine_for(using)
        try:
            keys = http.reap(engine)
            claims = sum(
                inbox.reap(engine, consumer=found.consumer, retention_ms=found.retention_ms)
                for found in handlers().values()
                if found.using == using
            )
        finally:
            engine.dispose()
        self.stdout.write(f"{keys} keys and {claims} claims deleted")
