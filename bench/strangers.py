"""Clients that never log in, in a process of their own: so many connections in each second, from several addresses of
the loopback, for as long as somebody else is measured. Their pace is bounded, because what they take from the machine
themselves must not be counted against the broker."""

from __future__ import annotations

import base64
import itertools
import multiprocessing
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection as Pipe
from typing import TypeVar

from bench.clients import LoadFailed
from semel.wire import kafka, messages
from semel.wire.frames import parse_response_header, read_frame
from semel.wire.message import Request, Response

A = TypeVar("A", bound=Response)

CONNECTIONS_PER_SECOND = 300
# The oldest are closed.
CONNECTIONS_KEPT = 2_000
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 12)]
CONNECT_SECONDS_MAX = 10.0
# A message of a login is far smaller.
ANSWER_BYTES_MAX = 64 * 1024
# Each waits 100 ms for its refusal.
GUESSERS = 8
# The beginning of a ClientHello that says it has 512 bytes.
HELLO = bytes((0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3))
# The size of a request, and the beginning of one.
HALF_A_REQUEST = bytes((0, 0, 0x70, 0, 0, 17, 0, 1))
# Requests for ApiVersions of version 0, without a client id.
MANY_QUESTIONS = bytes((0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF)) * 1_000


def silent(connected: socket.socket) -> None:
    """Nothing is sent."""


def byte_by_byte(connected: socket.socket) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in HELLO:
        connected.send(bytes([byte]))


def no_tls(connected: socket.socket) -> None:
    connected.send(b"GET / HTTP/1.1\r\n" * 10)


def half_a_login(connected: socket.socket) -> None:
    connected.send(HALF_A_REQUEST)


def asking(connected: socket.socket) -> None:
    connected.setblocking(False)
    connected.send(MANY_QUESTIONS)


@contextmanager
def connecting(act: Callable[[socket.socket], None], port: int) -> Iterator[None]:
    """While this lasts strangers connect to a port, do so, and stay."""
    with _process(_connect, act, port):
        yield


@contextmanager
def guessing(user: str, port: int) -> Iterator[None]:
    """While this lasts strangers try one wrong password after another."""
    with _process(_guess, user, port):
        yield


@contextmanager
def _process(target: Callable[..., None], *arguments: object) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        _count(ours)
        yield
        if not _count(ours):
            raise LoadFailed("the strangers have done nothing meanwhile")
    finally:
        process.kill()
        process.join()


def _count(pipe: Pipe) -> int:
    """How many times they have tried since they were asked last."""
    try:
        pipe.send("how many?")
        return int(pipe.recv())
    except (EOFError, OSError):
        raise LoadFailed("the strangers died") from None


def _connect(pipe: Pipe, act: Callable[[socket.socket], None], port: int) -> None:
    kept: deque[socket.socket] = deque(maxlen=CONNECTIONS_KEPT)
    tries, began = 0, time.monotonic()
    for number, address in enumerate(itertools.cycle(ADDRESSES), 1):
        # It may have been sent away already.
        with suppress(OSError):
            connected = socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS_MAX, source_address=(address, 0))
            kept.append(connected)
            act(connected)
        tries += 1
        if pipe.poll(max(0.0, began + number / CONNECTIONS_PER_SECOND - time.monotonic())):
            pipe.recv()
            pipe.send(tries)
            tries = 0


def _guess(pipe: Pipe, user: str, port: int) -> None:
    tries = itertools.count()

    def guess() -> None:
        while True:
            # It is refused, or there is no place for it.
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS_MAX) as connected:
                _log_in_wrongly(connected, user)
            next(tries)

    for _ in range(GUESSERS):
        threading.Thread(target=guess, daemon=True).start()
    before = 0
    while True:
        pipe.recv()
        now = next(tries)
        pipe.send(now - before)
        before = now + 1


def _log_in_wrongly(connected: socket.socket, user: str) -> None:
    """A whole login by SCRAM-SHA-256 whose proof is wrong. The proof is not computed: hashing a password takes a client
    far longer than it takes the broker to refuse it, and would take the machine from the client that is measured."""
    login = kafka.sasl_authenticate.SaslAuthenticateRequest
    _ask(connected, kafka.sasl_handshake.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    answer = _ask(connected, login(auth_bytes=f"n,,n={user},r=guess".encode()), 2)
    nonce = answer.auth_bytes.decode().partition("r=")[2].partition(",")[0]
    wrong = base64.b64encode(bytes(32)).decode()
    _ask(connected, login(auth_bytes=f"c=biws,r={nonce},p={wrong}".encode()), 2)


def _ask(connected: socket.socket, request: Request[A], version: int) -> A:
    connected.sendall(messages.encode_request(request, version, 1, None))
    frame = read_frame(connected.recv_into, ANSWER_BYTES_MAX)
    _, begin = parse_response_header(request.KEY, version, frame)
    return messages.decode_response(messages.response_type_of(request), version, memoryview(frame)[begin:])
