"""Sensible requests of every API in every version, with some bytes changed by chance: whatever comes, the broker
answers it or ends that connection; it prints no traceback, and others are served.

    SEMEL_TEST_REQUESTS=1000000 SEMEL_TEST_EXPLORE=1 make test ARGS=tests/log/broker/apis/test_changed_requests.py
"""

from __future__ import annotations

import os
import random
import struct

import pytest
from test_every_version import VERSIONS, requests

import plain_messages as messages
from asking import Asker, ConnectionEnded, topic_wanted
from semel.testing.broker import FaultyBroker
from semel.wire.versions import API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID, METADATA

REQUESTS = int(os.environ.get("SEMEL_TEST_REQUESTS", "1500"))
SEED = random.randrange(2**32) if os.environ.get("SEMEL_TEST_EXPLORE") else 1
# Where numbers end.
EDGES = (0, 1, -1, 2, 127, -128, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
# After so many requests there may be no topic any more to ask about.
FRESH_EVERY = 500


def changed(frame: bytes, chance: random.Random) -> bytes:
    """Some bytes of this frame are others, some are gone, and some are there twice; mostly not those that say which API
    and which version it is."""
    body = bytearray(frame[8:])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        place = chance.randrange(len(body) + 1)
        match chance.randrange(6):
            case 0:
                body[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                body[place : place + 1] = chance.choice((b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff"))
            case 2:
                kind = chance.choice("bhiq")
                size = struct.calcsize(kind)
                edges = [edge for edge in EDGES if -(2 ** (8 * size - 1)) <= edge < 2 ** (8 * size - 1)]
                body[place : place + size] = struct.pack(f">{kind}", chance.choice(edges))
            case 3:
                del body[place : place + chance.randrange(1, 9)]
            case 4:
                body[place:place] = chance.randbytes(chance.randrange(1, 9))
            case _:
                begin = chance.randrange(len(body) + 1)
                body[place:place] = body[begin : begin + chance.randrange(1, 20)]
    head = frame[4:8] if chance.random() < 0.98 else chance.randbytes(4)
    return struct.pack(">i", len(head) + len(body)) + head + body


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.exc_info or "request_failed" in one.getMessage()]


def test_whatever_is_changed_in_a_request_no_broker_fails_over_it(
    broker: FaultyBroker, ask: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED)
    producer = {"transactional_id": "payments", "transaction_timeout_ms": 60_000}
    producer_id = ask(INIT_PRODUCER_ID, producer_id=-1, producer_epoch=-1, **producer).producer_id
    sensible = requests(ask.create("orders", 2).topic_id, producer_id)
    answers = 0
    sender = Asker(broker.bootstrap)
    for number in range(REQUESTS):
        if number % FRESH_EVERY == 0:
            ask(CREATE_TOPICS, topics=[topic_wanted("orders", 2)], timeout_ms=1000)
        api_key, version = chance.choice(VERSIONS)
        request = messages.build_request(api_key, version, **sensible[api_key])
        frame = changed(messages.encode_request(api_key, version, number, "changed", request), chance)
        try:
            sender.post(frame)
            ask(API_VERSIONS, 0)
            if sender.has_answer():
                sender.read()
                answers += 1
                continue
        except (ConnectionEnded, ConnectionError):
            pass
        # It has ended, or something is waited for.
        sender.close()
        sender = Asker(broker.bootstrap)
        assert not failures(caplog), (SEED, number, api_key, version, frame.hex())
    sender.close()
    assert not failures(caplog)
    assert 0 < answers < REQUESTS
    assert ask(METADATA, 1, topics=None).controller_id >= 0
