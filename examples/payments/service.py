"""The API: accepts each payment once, even if it is sent several times. Run it with `uvicorn payments.service:app`.

The payment, its event, the key and the answer commit in one transaction. Nothing here talks to the broker: the relay
does, after the transaction has committed.
"""

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import AsyncIterator
from typing import Final

import prometheus_client
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field
from sqlalchemy import insert, select
from sqlalchemy.exc import SQLAlchemyError

from payments.tables import PAYMENTS_DATABASE, payments
from semel import outbox, watch
from semel.database import engine_of
from semel.http import AsgiIdempotency, Idempotency, document, reap

TOPIC: Final = "payments"
# A person has to decide about larger payments.
AMOUNT_CENTS_MAX: Final = 100_000
REAP_EVERY_SECONDS: Final = 3600

logger = logging.getLogger("payments")
engine = engine_of(PAYMENTS_DATABASE)
# A real service takes the caller from its authentication, which runs before: see docs/how-to/http.md. Here the caller
# names itself.
idempotency = Idempotency(engine, scope=lambda request: request.headers.get("x-api-key"), steps=("/receipts",))


class Payment(BaseModel):
    # PostgreSQL cannot store a text that contains a NUL.
    payer: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")
    payee: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")
    amount_cents: int = Field(gt=0)


class Accepted(BaseModel):
    payment: str


class Receipt(BaseModel):
    payment: str


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    reaper = asyncio.create_task(reap_for_ever())
    yield
    reaper.cancel()


async def reap_for_ever() -> None:
    """Delete expired keys and their answers, once an hour."""
    while True:
        try:
            await asyncio.to_thread(reap, engine)
        except SQLAlchemyError:
            logger.exception("nothing was reaped; it is tried again in an hour")
        await asyncio.sleep(REAP_EVERY_SECONDS)


app = FastAPI(title="Payments", lifespan=lifespan)
app.add_middleware(AsgiIdempotency, idempotency=idempotency)
document(app, idempotency)
# The counters are in the registry already; this adds the gauges of what waits in the database.
watch.register(engine)
app.mount("/metrics", prometheus_client.make_asgi_app())


@app.post("/payments", status_code=201)
def pay(payment: Payment, request: Request) -> Accepted:
    if payment.amount_cents > AMOUNT_CENTS_MAX:
        raise HTTPException(403, f"A payment of more than {AMOUNT_CENTS_MAX} cents needs a person.")
    connection = idempotency.connection(request)
    row = {"id": str(uuid.uuid4()), **payment.model_dump()}
    connection.execute(insert(payments), row)
    # The event has its own id, because a payment may have more events one day. Its key is the payer, so all events of a
    # payer are in one partition. If two payments come at the same moment, either may be first, because nothing here
    # locks the payer.
    event = {"event": str(uuid.uuid4()), **row}
    outbox.add(connection, TOPIC, key=payment.payer, value=json.dumps(event))
    return Accepted(payment=row["id"])


@app.get("/payments/{payment_id}")
def look_up(payment_id: str) -> dict[str, str | int]:
    with engine.connect() as connection:
        found = connection.execute(select(payments).where(payments.c.id == payment_id)).mappings().first()
    if found is None:
        raise HTTPException(404, "There is no such payment.")
    return dict(found)


@app.post("/receipts", status_code=202)
def mail_receipt(receipt: Receipt, request: Request) -> Accepted:
    """A mail takes no key, so this call may happen twice. `unkeyed` says so: a warning and a counter show each time
    that it may have. A transaction would not help, because it cannot take back a mail."""
    with idempotency.key(request).step("mail", unkeyed=True) as step:
        if step.first:
            send_mail(receipt.payment)
    return Accepted(payment=receipt.payment)


def send_mail(payment: str) -> None:
    """Stands for a mail server."""
    logger.info("a receipt for payment %s was mailed", payment)
