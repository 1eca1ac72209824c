"""`semel serve`: the broker as a process."""

import argparse
import asyncio
import signal
import sys
import time

import uvloop

from semel.broker.broker import Broker, BrokerFailed
from semel.storage.journal import Damaged


def serve(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="semel serve")
    parser.add_argument("--listen", default="127.0.0.1:9092", metavar="HOST:PORT")
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--durability", choices=("fsync", "os"), default="fsync")
    options = parser.parse_args(arguments)
    host, _, port = options.listen.rpartition(":")
    broker = Broker(options.data, host=host, port=int(port), durability=options.durability)
    try:
        uvloop.run(_run(broker))
    except (OSError, Damaged, BrokerFailed) as error:
        print(f"semel: {error}", file=sys.stderr)
        sys.exit(1)


async def _run(broker: Broker) -> None:
    began = time.monotonic()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with broker:
        print(f"semel ready on {broker.bootstrap} in {time.monotonic() - began:.2f} s", flush=True)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((stopped, broker.failed), return_when="FIRST_COMPLETED")
        if broker.failed.done():
            broker.failed.result()
