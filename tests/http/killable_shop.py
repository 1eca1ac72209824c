"""A real service for uvicorn, that says on standard output where it is, and can be told to wait there for its end."""

import asyncio
import os

from applications import book
from conftest_http import async_engine_of, caller
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel.database import within_async
from semel.http import AsgiIdempotency, Idempotency

idempotency = Idempotency(
    async_engine_of(os.environ["SHOP_DATABASE"]),
    scope=caller,
    steps=("/charges",),
    # Short, so that the test does not have to wait for long until the lease of the dead runs out.
    lease_ms=1500,
)


async def wait_for_the_end(place: str) -> None:
    os.write(1, f"{place}\n".encode())
    if "SHOP_HOLDS" in os.environ:
        await asyncio.Event().wait()


async def pay(request: Request) -> Response:
    await within_async(idempotency.connection(request), lambda connection: book(connection, {"amount": "paid"}))
    await wait_for_the_end("paid")
    return JSONResponse({"paid": True}, 201)


async def charge(request: Request) -> Response:
    key = idempotency.key(request)
    async with key.step("charge") as step:
        if step.first:
            await within_async(await step.connection(), lambda connection: book(connection, {"amount": "charged"}))
            step.result = "ch_1"
    charged = step.result
    async with key.step("mail"):
        await wait_for_the_end("charged")
    return JSONResponse({"charged": charged}, 201)


app = Starlette(routes=[Route("/payments", pay, methods=["POST"]), Route("/charges", charge, methods=["POST"])])
app.add_middleware(AsgiIdempotency, idempotency=idempotency)
