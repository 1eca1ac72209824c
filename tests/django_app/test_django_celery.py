"""Tasks of Celery in a Django project: sent if the ORM's transaction commits, done once by the ORM, and never published
into a log."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from sqlalchemy import Engine

from committed_records import committed_values, make_topic
from djangos import configure, count, model_on
from semel import outbox as plain_outbox
from semel.database import NotInTransaction

celery: Any = pytest.importorskip("celery", reason="needs Celery: pip install 'celery>=5.4'")

APP = celery.Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
APP.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
NAMED = f"{__name__}.APP"


def relayed(alias: str, bootstrap: str, **settings: Any) -> None:
    from django.core.management import call_command
    from django.test.utils import override_settings

    kafka = {"bootstrap.servers": bootstrap}
    with override_settings(SEMEL={"ALIAS": alias, "KAFKA": kafka, **settings}):
        call_command("semel_relay", drain=True)


def test_one_relay_sends_the_tasks_and_publishes_the_events(engine: Engine, alias: str, bootstrap: str) -> None:
    """And without the name of an app it says so, and loses nothing."""
    from celery.contrib.testing.worker import start_worker
    from django.core.management import CommandError
    from django.db import transaction
    from django.test.utils import override_settings

    from semel.django import outbox
    from semel.django.celery import enqueue, once

    rows = model_on(alias, "effects", "name")

    @APP.task(name=f"bill-{alias}")
    @once(using=alias)
    def bill(name: str) -> str:
        rows.create(name=name)
        return "billed"

    topic = f"orders-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, topic)
    with override_settings(SEMEL={"ALIAS": alias, "CELERY": NAMED}):
        for fails in (True, False):
            try:
                with transaction.atomic(using=alias):
                    outbox.add(topic, "k", "an order")
                    id = enqueue(bill, ["anna"])
                    if fails:
                        raise LookupError
            except LookupError:
                pass
    with pytest.raises(CommandError, match=r"SEMEL\['CELERY'\]"):
        relayed(alias, bootstrap)
    assert count(engine, plain_outbox.tables.messages) == 2
    relayed(alias, bootstrap, CELERY=NAMED)
    assert committed_values(bootstrap, topic) == [b"an order"]
    with start_worker(APP, pool="solo", perform_ping_check=False):
        assert APP.AsyncResult(id).get(timeout=60) == "billed"
        again = bill.apply_async(["anna"], task_id=id)
        assert again.get(timeout=60) in ("billed", None)
        assert bill.apply_async(["ben"]).get(timeout=60) == "billed"
    assert count(engine) == 2


def test_a_task_that_fails_has_done_nothing_and_one_that_comes_again_does_nothing(engine: Engine, alias: str) -> None:
    from semel.django.celery import once

    rows, fails = model_on(alias, "effects", "name"), True

    @APP.task(name=f"fails-{alias}")
    @once(using=alias)
    def bill() -> str:
        rows.create(name="anna")
        if fails:
            raise LookupError
        return "billed"

    with pytest.raises(LookupError):
        bill.apply(task_id=alias, throw=True)
    assert count(engine) == 0
    fails = False
    assert [bill.apply(task_id=alias, throw=True).get() for _ in range(2)] == ["billed", None]
    assert count(engine) == 1


def test_a_task_that_would_commit_alone_or_that_nobody_would_send_is_refused(engine: Engine, alias: str) -> None:
    from django.core.exceptions import ImproperlyConfigured
    from django.db import transaction
    from django.test.utils import override_settings

    from semel.django.celery import enqueue

    with override_settings(SEMEL={"CELERY": NAMED}), pytest.raises(NotInTransaction):
        enqueue("bill", using=alias)
    with transaction.atomic(using=alias), pytest.raises(ImproperlyConfigured, match="semel_relay would not send"):
        enqueue("bill", using=alias)
    assert count(engine, plain_outbox.tables.messages) == 0


def test_the_form_without_django_names_that_for_django(engine: Engine, alias: str) -> None:
    """Which a task finds out when it is made, or when it writes by the ORM."""
    from semel.celery import once
    from semel.database import WrittenElsewhere
    from semel.database.kinds import WrongKind
    from semel.http.django import transactions

    with pytest.raises(WrongKind, match=r"semel\.django\.celery\.once"):
        once(transactions)
    rows = model_on(alias, "effects", "name")

    @APP.task(name=f"elsewhere-{alias}")
    @once(engine)
    def bill(connection: Any) -> None:
        rows.create(name="anna")

    with pytest.raises(WrittenElsewhere, match=r"semel\.django\.celery\.once"):
        bill.apply(throw=True)
    assert count(engine) == 0


def test_a_name_that_is_no_app_is_found_by_the_check() -> None:
    from django.core.checks import run_checks
    from django.test.utils import override_settings

    configure()
    for name, says in (("djangos.effects", "of the kind Table"), ("nowhere.app", "No module")):
        with override_settings(SEMEL={"CELERY": name}):
            [said] = [one for one in run_checks(tags=["semel"]) if one.id == "semel.E003"]
        assert says in said.msg
