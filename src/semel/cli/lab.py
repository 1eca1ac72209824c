"""`semel lab`: the rules of idempotent producing in the smallest form, on the same log that the broker drives.

Every line is a command, and every command has an answer of one line. There is no network and no client: what a real
producer does for itself, numbering its batches, is in the reader's hands here, and so is doing it wrong.
"""

import argparse
import io
import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from semel.cli.errors import Failure
from semel.core import batch as batches
from semel.core.producers import SEQUENCE_MASK, Outcome
from semel.core.refusals import Refused
from semel.core.topics import Topic
from semel.storage.files import DiskFiles
from semel.storage.journal import Damaged
from semel.storage.log import Log
from semel.wire.records import Record, encode_batch

EXAMPLE: Final = """\
  semel lab docs/examples/lab.txt
  echo 'INIT p1' | semel lab
  semel lab                        at a terminal: a prompt; HELP lists the commands"""

_PROMPT: Final = "semel> "
_TOPIC: Final = "lab"
_WORD: Final = re.compile(r'"([^"]*)"(?!\S)|(\S+)')

COMMANDS: Final = """\
INIT p                              give producer p a new producer id
PRODUCE p SEQ payload [topic[:n]]   have p send a record under this sequence number
FENCE p                             let a successor of p begin: from now on p is a zombie, until INIT
LOG_SIZE                            how many records were accepted
RESTART                             crash the log and recover it from disk
HELP                                this list; # begins a comment"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="commands to run; standard input without one")
    parser.add_argument("--data", metavar="DIR", help="keep the log here; without it, it is gone in the end")


def run(options: argparse.Namespace) -> int:
    interactive = options.file is None and sys.stdin.isatty()
    try:
        if options.data is not None:
            return _run_on(options.data, _lines(options.file, interactive), interactive)
        with tempfile.TemporaryDirectory(prefix="semel-lab-") as directory:
            return _run_on(directory, _lines(options.file, interactive), interactive)
    except BlockingIOError:
        raise Failure(f"{options.data} is in use by another broker") from None
    except Damaged as error:
        raise Failure(f"the data directory cannot be used: {error}") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{error.filename or options.data or options.file}: {error.strerror or error}") from None


def _run_on(directory: str, lines: Iterable[str], interactive: bool) -> int:
    lab = Lab(directory)
    understood = True
    try:
        for line in lines:
            answer = lab.answer(line)
            if answer is not None:
                print(answer.text, flush=True)
                understood = understood and answer.understood
    finally:
        lab.close()
    return 0 if understood or interactive else 1


def _lines(path: str | None, interactive: bool) -> Iterator[str]:
    if path is not None:
        # A payload may be any bytes; what is no text goes through as it is.
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            yield from file
    elif interactive:
        import readline  # noqa: F401  (gives the prompt its history)

        while True:
            try:
                yield input(_PROMPT)
            except EOFError:
                print()
                return
    else:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        yield from sys.stdin


class Answer(NamedTuple):
    """What a command has to say, and whether it was a command at all."""

    text: str
    understood: bool = True


class Producer(NamedTuple):
    """A producer by the name the reader gave it."""

    producer_id: int
    epoch: int


class NotUnderstood(Exception):
    """The line is no command; the message says what is wrong with it."""


class Lab:
    """A log on a directory, and the producers that the reader has made."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._log = self._open()
        self._producers: dict[str, Producer] = {}
        # The epoch under which the successor of each fenced producer id has begun.
        self._successors: dict[int, int] = {}
        self._commands: dict[str, tuple[int, int, Callable[..., str]]] = {
            "INIT": (1, 1, self._init),
            "PRODUCE": (3, 4, self._produce),
            "FENCE": (1, 1, self._fence),
            "LOG_SIZE": (0, 0, self._log_size),
            "RESTART": (0, 0, self._restart),
            "HELP": (0, 0, lambda: COMMANDS),
        }

    def answer(self, line: str) -> Answer | None:
        """The answer to one line; None for an empty one or a comment."""
        words = _words(line)
        if not words:
            return None
        name, *arguments = words
        command = self._commands.get(name)
        if command is None:
            return Answer(f"ERROR: unknown command '{name}' (there are {', '.join(self._commands)})", understood=False)
        least, most, work = command
        if not least <= len(arguments) <= most:
            usage = next(entry for entry in COMMANDS.splitlines() if entry.startswith(name)).split("  ")[0]
            return Answer(f"ERROR: {name} is called like this: {usage}", understood=False)
        try:
            return Answer(work(*arguments))
        except NotUnderstood as error:
            return Answer(f"ERROR: {error}", understood=False)
        except Refused as refused:
            return Answer(f"ERROR: {refused.message}")

    def close(self) -> None:
        self._log.close()

    def _open(self) -> Log:
        return Log.open(DiskFiles(self._directory), new_cluster_id=str(uuid.uuid4()))

    def _init(self, name: str) -> str:
        producer = Producer(self._log.new_producer_id(_now_ms()), 0)
        self._log.sync_now()
        self._producers[name] = producer
        return f"PID {producer.producer_id} EPOCH {producer.epoch}"

    def _produce(self, name: str, sequence: str, payload: str, place: str = _TOPIC) -> str:
        producer = self._named(name)
        if not sequence.isascii() or not sequence.isdigit() or int(sequence) > SEQUENCE_MASK:
            raise NotUnderstood(f"'{sequence}' is no sequence number: 0 to {SEQUENCE_MASK} are")
        successor = self._successors.get(producer.producer_id)
        if successor is not None:
            return f"ERROR: fenced (epoch {producer.epoch}, current {successor})"
        topic, index = self._place(place)
        partition = self._log.partition(topic, index)
        if partition is None:
            raise AssertionError("the partition has just been made")
        now_ms = _now_ms()
        batch = encode_batch(
            [Record(payload.encode(errors="surrogateescape"), timestamp_ms=now_ms)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=int(sequence),
        )
        header = batches.accept_from_client(batch, topic.parsed.max_message_bytes)
        appended = self._log.append(topic, partition, header, batch, now_ms)
        self._log.sync_now()
        if appended.outcome is Outcome.ACCEPTED:
            return f"OK offset:{appended.base_offset}"
        if appended.outcome is Outcome.DUPLICATE:
            return f"DUPLICATE offset:{appended.base_offset}"
        return f"ERROR: {appended.message}"

    def _fence(self, name: str) -> str:
        producer = self._named(name)
        epoch = self._successors.get(producer.producer_id, producer.epoch) + 1
        self._successors[producer.producer_id] = epoch
        return f"PID {producer.producer_id} EPOCH {epoch}"

    def _log_size(self) -> str:
        return str(sum(partition.state.next_offset for partition in self._log.partitions()))

    def _restart(self) -> str:
        self._log.abandon()
        self._log = self._open()
        return f"RESTARTED with {self._log_size()} records"

    def _named(self, name: str) -> Producer:
        producer = self._producers.get(name)
        if producer is None:
            raise NotUnderstood(f"there is no producer '{name}', INIT makes one")
        return producer

    def _place(self, place: str) -> tuple[Topic, int]:
        """The topic and partition that are meant by topic or topic:partition, made if they are not there."""
        name, colon, number = place.partition(":")
        if colon and not (number.isascii() and number.isdigit()):
            raise NotUnderstood(f"'{place}' is no topic:partition")
        index = int(number or 0)
        catalog = self._log.catalog
        topic = catalog.named(name)
        if topic is None:
            self._log.commit(catalog.decide_create(name, index + 1, {}, os.urandom(16), _now_ms()))
        elif topic.partition_count <= index:
            self._log.commit(catalog.decide_partitions(name, index + 1))
        return catalog.existing(name), index


def _words(line: str) -> list[str]:
    """The words of a line, up to a comment; in double quotes a word may have spaces."""
    words = []
    for quoted, plain in _WORD.findall(line):
        if plain.startswith("#"):
            break
        words.append(plain or quoted)
    return words


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
