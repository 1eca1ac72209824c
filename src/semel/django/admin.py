"""Admin pages for what was put aside: a person looks at it, and has it tried again or dropped.

Nothing else can be changed there. The action `retry` asks for the right to change a row, and `drop` for
that to delete one. What they do is in `semel.inbox.quarantine` and `semel.outbox.quarantine`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.db import connections, transaction
from sqlalchemy import Connection

from semel.database import within
from semel.database.clock import now_ms
from semel.django.inbox import handlers
from semel.django.models import MODELS
from semel.inbox import quarantine as of_inbox
from semel.outbox import Unsettled
from semel.outbox import quarantine as of_outbox

Change = Callable[[Connection, Sequence[int]], None]


class _Quarantine(admin.ModelAdmin):  # type: ignore[misc]
    actions = ("retry", "drop")
    ordering = ("number",)
    retried: Change
    dropped: Change

    def has_add_permission(self, *_request: Any) -> bool:
        return False

    def has_change_permission(self, *_request: Any) -> bool:
        return False

    def has_delete_permission(self, *_request: Any) -> bool:
        return False

    def has_view_permission(self, request: Any, *_row: Any) -> bool:
        return any(self._may(request, action) for action in ("view", "change", "delete"))

    def has_retry_permission(self, request: Any) -> bool:
        return self._may(request, "change")

    def has_drop_permission(self, request: Any) -> bool:
        return self._may(request, "delete")

    def _may(self, request: Any, action: str) -> bool:
        codename = get_permission_codename(action, self.opts)
        return bool(request.user.has_perm(f"{self.opts.app_label}.{codename}"))

    @admin.action(permissions=["retry"], description="Try again")  # type: ignore[untyped-decorator]
    def retry(self, request: Any, rows: Any) -> None:
        self._change(request, rows, type(self).retried, "marked to be tried again")

    @admin.action(permissions=["drop"], description="Drop: never try again")  # type: ignore[untyped-decorator]
    def drop(self, request: Any, rows: Any) -> None:
        self._change(request, rows, type(self).dropped, "dropped")

    def _change(self, request: Any, rows: Any, change: Change, done: str) -> None:
        """All of the chosen rows, or none."""
        chosen = list(rows)
        try:
            with transaction.atomic(using=rows.db), within(connections[rows.db].connection) as connection:
                change(connection, [row.number for row in chosen])
        except (of_inbox.Unsettled, Unsettled) as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        for row in chosen:
            self.log_change(request, row, done)
        self.message_user(request, f"{len(chosen)} {done}")


def _drop_events(connection: Connection, numbers: Sequence[int]) -> None:
    """The first version of an aggregate is what the handler of the consumer says."""
    known = handlers()
    for number in numbers:
        event = of_inbox.event_of(connection, number)
        found = known.get(event.consumer) if event is not None else None
        first = 1 if found is None else found.first_version
        of_inbox.drop(connection, [number], first_version=first, now_ms=now_ms())


@admin.register(MODELS["semel_inbox_quarantine"])
class InboxQuarantine(_Quarantine):
    list_display = ("number", "consumer", "subject", "state", "cause", "attempts", "reason")
    list_filter = ("consumer", "cause", "state")
    fields = (*list_display, "topic", "partition", "offset", "content")
    readonly_fields = fields
    retried = staticmethod(of_inbox.retry)
    dropped = staticmethod(_drop_events)

    def get_queryset(self, request: Any) -> Any:
        """Those that wait for a person or for the loop."""
        return super().get_queryset(request).filter(state__in=[state.value for state in of_inbox.OPEN])

    @admin.display(description="value")  # type: ignore[untyped-decorator]
    def content(self, row: Any) -> str:
        return "-" if row.value is None else bytes(row.value).decode(errors="backslashreplace")


@admin.register(MODELS["semel_outbox_quarantine"])
class OutboxQuarantine(_Quarantine):
    list_display = ("number", "reason")
    fields = readonly_fields = list_display
    retried = staticmethod(of_outbox.retry)
    dropped = staticmethod(of_outbox.drop)
