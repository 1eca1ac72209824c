"""What Django runs inside of the example's project: the admin pages of both quarantines, by Django's own client.

It is copied into the project, and tells there what does not hold.
"""

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from shop.inbox import bill
from shop.models import Invoice

from semel.database import within
from semel.django import outbox
from semel.django.inbox import Message, Outcome
from semel.django.models import MODELS
from semel.outbox.tables import quarantine as refused

EVENTS = "/admin/semel/inboxquarantine/"
MESSAGES = "/admin/semel/outboxquarantine/"
FOR_NOBODY = Message("orders", 0, 0, b"one", b"a pen")


class Admin(TestCase):
    def setUp(self) -> None:
        self.user = User.objects.create_user("anna", is_staff=True)
        self.client.force_login(self.user)

    def may(self, *rights: str) -> None:
        self.user.user_permissions.set(Permission.objects.filter(codename__in=rights))

    def act(self, page: str, action: str, *numbers: int) -> Any:
        return self.client.post(page, {"action": action, "_selected_action": numbers}, follow=True)

    def put_aside(self) -> int:
        with self.assertLogs("semel.inbox"):
            assert bill.take(FOR_NOBODY) is Outcome.QUARANTINED
        return int(MODELS["semel_inbox_quarantine"].objects.get().number)

    def state(self) -> str:
        return str(MODELS["semel_inbox_quarantine"].objects.get().state)

    def test_who_may_only_look_changes_nothing(self) -> None:
        number = self.put_aside()
        assert self.client.get(EVENTS).status_code == 403
        self.may("view_inboxquarantine")
        page = self.client.get(EVENTS)
        assert b"ValueError" in page.content
        assert b'value="retry"' not in page.content
        assert b"a pen" in self.client.get(f"{EVENTS}{number}/change/").content
        for action in ("retry", "drop", "delete_selected"):
            self.act(EVENTS, action, number)
        assert self.client.post(f"{EVENTS}{number}/change/", {"reason": "none"}).status_code == 403
        assert self.state() == "held"

    def test_each_action_has_a_right_of_its_own(self) -> None:
        number = self.put_aside()
        self.may("delete_inboxquarantine")
        self.act(EVENTS, "retry", number)
        assert self.state() == "held"
        self.may("change_inboxquarantine")
        self.act(EVENTS, "drop", number)
        assert self.state() == "held"
        self.act(EVENTS, "retry", number)
        assert self.state() == "due"
        assert LogEntry.objects.get().change_message == "marked to be tried again"

    def test_an_event_that_was_dropped_is_done(self) -> None:
        number = self.put_aside()
        self.may("delete_inboxquarantine")
        assert b"1 dropped" in self.act(EVENTS, "drop", number).content
        assert self.state() == "dropped"
        assert bill.take(FOR_NOBODY) is Outcome.DUPLICATE
        assert Invoice.objects.count() == 0

    def test_a_message_that_was_refused_is_dropped(self) -> None:
        self.may("delete_outboxquarantine")
        with transaction.atomic():
            outbox.add("orders", "1", "a pen")
        number = MODELS["semel_outbox"].objects.get().number
        with transaction.atomic(), within(connection.connection) as own:
            own.execute(refused.insert(), {"number": number, "reason": "too large", "refused_at_ms": 0})
        assert b"too large" in self.client.get(MESSAGES).content
        assert b"1 dropped" in self.act(MESSAGES, "drop", number).content
        assert not MODELS["semel_outbox"].objects.exists()


class Emptied(TransactionTestCase):
    """A test that commits leaves no claim to the next one."""

    def test_the_first_time(self) -> None:
        assert bill.take(Message("orders", 0, 0, b"1", b"a pen")) is Outcome.ACCEPTED

    def test_the_second_time(self) -> None:
        self.test_the_first_time()
