"""Handlers of events: the claim of an event and what its handler does by the ORM commit in one transaction.

    # shop/inbox.py
    @inbox.handler("orders", consumer="billing", identity=lambda message: message.header("id").decode())
    def book(message):
        Payment.objects.create(order=message.value.decode())

`manage.py semel_inbox billing` consumes. It finds the handlers in the modules named `inbox` of the applications. What a
claim is, and when a message is put aside, is in `semel.inbox`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.utils.module_loading import autodiscover_modules

from semel import inbox
from semel.django.aliases import Database, StatementsOf, alias
from semel.inbox import Message, Outcome, Version
from semel.inbox.reaper import RETENTION_MS

__all__ = ["Handler", "Message", "Outcome", "Version", "handler", "handlers"]

Function = Callable[[Message], Any]


class Inbox(inbox.Inbox):
    """The loop, whose transactions are those of Django."""

    @staticmethod
    def _engine_of(database: Any) -> Any:
        return StatementsOf(database)


class Handler:
    """A function with its topics. A call is one of the function, without a claim."""

    def __init__(
        self, function: Function, topics: Sequence[str], using: str | None, options: Mapping[str, Any]
    ) -> None:
        self.function = function
        self.topics = topics
        self.consumer: str = options["consumer"]
        self.first_version: int = options.get("first_version", 1)
        self.retention_ms: int = options.get("retention_ms", RETENTION_MS)
        self._using = using
        self._options = options

    def __call__(self, message: Message) -> Any:
        return self.function(message)

    @property
    def using(self) -> str:
        return self._using or alias()

    @cached_property
    def inbox(self) -> Inbox:
        """The loop: it counts outcomes, and is stopped."""
        return Inbox(Database(self.using), **self._options)  # type: ignore[arg-type]

    def run(self, kafka: Mapping[str, Any]) -> None:
        """Consume until `inbox.stop()`; a group has the name of the consumer unless the settings name one."""
        self.inbox.run(self._handle, {"group.id": self.consumer, **kafka}, self.topics)

    def take(self, message: Message) -> Outcome | None:
        """Handle one message as the loop does: for tests, and for loops of your own."""
        return self.inbox.take(self._handle, message)

    def retry_due(self) -> None:
        """Handle what a person has marked for a retry, as the loop does from time to time."""
        self.inbox.retry_due(self._handle)

    def _handle(self, _connection: object, message: Message) -> None:
        # In this thread, where the transaction is.
        function = async_to_sync(self.function) if iscoroutinefunction(self.function) else self.function
        function(message)


_handlers: Final[dict[str, Handler]] = {}


def handler(*topics: str, using: str | None = None, **options: Any) -> Callable[[Function], Handler]:
    """Makes a function the handler of these topics. `options` are those of `semel.inbox.Inbox`: `consumer` and
    `identity`, and `retries`, `first_version` and others; `using` is the alias, by default that of the settings."""

    def registered(function: Function) -> Handler:
        made = Handler(function, topics, using, options)
        if made.consumer in _handlers:
            raise ValueError(f"there are two handlers of the consumer {made.consumer!r}: a consumer has one")
        _handlers[made.consumer] = made
        return made

    return registered


def handlers() -> dict[str, Handler]:
    """The handlers of all applications, by the names of their consumers."""
    autodiscover_modules("inbox")
    return dict(_handlers)
