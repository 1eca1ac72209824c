"""A service with HTTP keys, killed: each request has one effect and one answer, and a step is not done again.

The client repeats what it got no answer to, as clients do. The payment works in one transaction; the refusal has no
effect; the charge calls somebody outside, who knows a key that he has seen.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, func, insert, select
from werkzeug.test import Client

from crash_kit.survey import Place
from semel.database import engine_of
from semel.http import Fenced, Idempotency, WsgiIdempotency, metadata

NAME = "http"
_LEASE_MS: Final = 60_000
_TABLES = MetaData()
_EFFECTS = Table(
    "http_effects",
    _TABLES,
    Column("id", Integer, primary_key=True),
    Column("label", String, nullable=False),
    Column("what", String, nullable=False),
)
_ANSWERS: Final = {"/payments": 201, "/refused": 402, "/charges": 201}


def prepare(place: Place) -> None:
    engine = engine_of(place.url)
    for tables in (metadata, _TABLES):
        tables.create_all(engine)
    engine.dispose()


def work(place: Place) -> None:
    service = _Service(place)
    for path, status in _ANSWERS.items():
        first = service.post(path, status)
        again = service.post(path, status)
        if again != first:
            raise AssertionError(f"{path} answered {first}, and then {again}")
    service.engine.dispose()


def audit(place: Place) -> None:
    service = _Service(place)
    assert service.effects("paid") == 1, f"paid {service.effects('paid')} times"
    assert service.effects("refused") == 0, "a refusal had an effect"
    assert service.effects("charged") == 1, f"charged {service.effects('charged')} times"
    assert service.effects("booked") == 1, f"booked {service.effects('booked')} times"
    for path, what in (("/payments", "paid"), ("/charges", "booked")):
        assert service.post(path, 201) == {"id": service.id_of(what)}
    service.engine.dispose()


class _Service:
    """The application and its client in one process. The clock goes on by a lease whenever somebody has to wait."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.engine: Engine = engine_of(place.url)
        self._waited_ms = 0
        self._idempotency = Idempotency(
            self.engine,
            scope=lambda request: place.label,
            steps=("/charges",),
            lease_ms=_LEASE_MS,
            clock=lambda: time.time_ns() // 1_000_000 + self._waited_ms,
        )
        self._client = Client(WsgiIdempotency(self._app, self._idempotency))

    def post(self, path: str, status: int) -> Any:
        while True:
            try:
                answer = self._client.post(path, data=b"{}", headers={"Idempotency-Key": path})
            except Fenced:
                # Our lease had run out for a rival, who has waited long enough: he is the one, and we ask again.
                continue
            if answer.status_code == status:
                return json.loads(answer.data)
            if answer.status_code not in (409, 503):
                raise AssertionError(f"{path} answered {answer.status_code}: {answer.data!r}")
            self._waited_ms += _LEASE_MS

    def effects(self, what: str) -> int:
        with self.engine.connect() as connection:
            mine = _EFFECTS.c.label == self.place.label, _EFFECTS.c.what == what
            return connection.scalar(select(func.count()).where(*mine)) or 0

    def id_of(self, what: str) -> int:
        with self.engine.connect() as connection:
            mine = _EFFECTS.c.label == self.place.label, _EFFECTS.c.what == what
            return connection.scalars(select(_EFFECTS.c.id).where(*mine)).one()

    def _app(self, environ: Any, start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"]
        answer = self._charge(environ) if path == "/charges" else self._pay(environ, path)
        start_response(f"{_ANSWERS[path]} Done", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def _pay(self, environ: Any, path: str) -> dict[str, int]:
        what = "paid" if path == "/payments" else "refused"
        number = _add(self._idempotency.connection(environ), self.place.label, what)
        return {"id": number} if what == "paid" else {"id": 0}

    def _charge(self, environ: Any) -> dict[str, int]:
        key = self._idempotency.key(environ)
        with key.step("charge") as step:
            if step.first:
                self._call_outside(step.derived_key)
        with key.step("book") as step:
            if step.first:
                step.result = _add(step.connection(), self.place.label, "booked")
        return {"id": step.result}

    def _call_outside(self, derived_key: str) -> None:
        """Somebody who commits on his own, and does nothing for a key that he has seen."""
        with self.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(1)))
            seen = select(func.count()).where(_EFFECTS.c.label == derived_key)
            if not connection.scalar(seen):
                _add(connection, derived_key, "known")
                _add(connection, self.place.label, "charged")


def _add(connection: Any, label: str, what: str) -> int:
    added = connection.execute(insert(_EFFECTS).values(label=label, what=what))
    number: int = added.inserted_primary_key[0]
    return number
