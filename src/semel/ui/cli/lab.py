"""`semel lab`: the rules of idempotence and transactions in the smallest form, on the same log as in the broker.

Every line is a command, and every command has an answer of one line. There is no network and no client: the reader
numbers the batches, as a real producer would, and may do it wrong.
"""

import argparse
import io
import json
import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from semel.log.at_rest import Damaged, Log, PartitionLog, Sender, Topic, check_sent
from semel.log.files import DiskFiles
from semel.ui.cli.data_directory import check_directory
from semel.ui.cli.errors import Failure
from semel.wire.records import Record, decode_batches, encode_batch
from semel.wire.refusals import Refused
from semel.wire.sequences import SEQUENCE_MASK, Outcome

EXAMPLE: Final = """\
  semel lab docs/examples/lab.txt
  semel lab --plain docs/examples/lab.txt
  echo 'INIT p1' | semel lab
  semel lab                        # at a terminal: a prompt; HELP lists the commands"""

_PROMPT: Final = "semel> "
_TOPIC: Final = "lab"
# The lab has no clock, and a log in a directory may be opened again days later.
_TIMEOUT_MS: Final = 900_000
_ISOLATIONS: Final = ("committed", "uncommitted")
_WORD: Final = re.compile(r'"([^"]*)"(?!\S)|(\S+)')
# As many digits as the largest sequence number has. Python refuses to read very many.
_NUMBER: Final = re.compile(r"[0-9]{1,10}")

COMMANDS: Final = """\
INIT p                              give producer p a new producer id
PRODUCE p SEQ payload [topic[:n]]   have p send a record under this sequence number
BEGIN p                             open a transaction: what p sends from now on is part of it
COMMIT p                            end it in all its partitions at once: its records count
ABORT p                             end it in all its partitions at once: its records are never seen
READ topic [committed|uncommitted]  what a consumer of a topic gets, with the offsets (committed)
FENCE p                             start a successor of p: from now on p is a zombie, until INIT
LOG_SIZE                            how many records were accepted
RESTART                             crash the log and recover it from disk
HELP                                this list; # begins a comment"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file of commands (standard input)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--plain", action="store_true", help="answer only with verdicts: OK, DUPLICATE, ERROR: and the reason"
    )
    form.add_argument("--json", action="store_true", help="answer in JSON, an object for each command")
    parser.add_argument("--data", metavar="DIR", help="keep the log in this directory (in memory)")


def run(options: argparse.Namespace) -> int:
    interactive = options.file is None and sys.stdin.isatty()
    form = Answer.as_json if options.json else Answer.as_verdict if options.plain else Answer.as_text
    try:
        if options.data is not None:
            check_directory(options.data, "a lab has no store")
            return _run_on(options.data, _lines(options.file, interactive), interactive, form)
        with tempfile.TemporaryDirectory(prefix="semel-lab-") as directory:
            return _run_on(directory, _lines(options.file, interactive), interactive, form)
    except BlockingIOError:
        raise Failure(
            f"{options.data} is in use by a broker: stop it, or give the lab a copy of the directory"
        ) from None
    except Damaged as error:
        raise Failure(f"the data directory cannot be used: {error}") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{error.filename or options.data or options.file}: {error.strerror or error}") from None


def _run_on(directory: str, lines: Iterable[str], interactive: bool, form: "Callable[[Answer], str]") -> int:
    lab = Lab(directory)
    understood = True
    try:
        for line in lines:
            answer = lab.answer(line)
            if answer is not None:
                print(form(answer), flush=True)
                understood = understood and answer.understood
    finally:
        lab.close()
    return 0 if understood or interactive else 1


def _lines(path: str | None, interactive: bool) -> Iterator[str]:
    if path is not None:
        # A payload may be any bytes; those that are not text are passed on unchanged.
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


class Reply(NamedTuple):
    """The answer of a command: as a line, as a word, and as JSON."""

    text: str
    verdict: str
    fields: dict[str, object]


class Answer(NamedTuple):
    """The answer to a line, and whether the line was a command."""

    command: str
    reply: Reply
    understood: bool = True

    def as_text(self) -> str:
        return self.reply.text

    def as_verdict(self) -> str:
        return self.reply.verdict

    def as_json(self) -> str:
        return json.dumps({"command": self.command, **self.reply.fields})


def _ok(text: str = "OK", **fields: object) -> Reply:
    return Reply(text, "OK", {"answer": "OK", **fields})


def _duplicate(text: str, **fields: object) -> Reply:
    return Reply(text, "DUPLICATE", {"answer": "DUPLICATE", **fields})


def _error(message: str) -> Reply:
    """Split a message: the numbers in brackets belong to this case only, and not to the verdict."""
    return Reply(f"ERROR: {message}", f"ERROR: {message.partition(' (')[0]}", {"answer": "ERROR", "message": message})


def _reply(text: str, **fields: object) -> Reply:
    """An answer whose verdict is the text itself."""
    return Reply(text, text, {"answer": "OK", **fields})


class Producer(NamedTuple):
    """A producer with the name that the reader gave it, and its transactional id, which is claimed when needed."""

    transactional_id: str
    producer_id: int
    epoch: int


class NotUnderstood(Exception):
    """The line is not a command; the message says why."""


class Lab:
    """A log on a directory, and the producers that the reader has made."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._log = self._open()
        self._producers: dict[str, Producer] = {}
        self._commands: dict[str, tuple[int, int, Callable[..., Reply]]] = {
            "INIT": (1, 1, self._init),
            "PRODUCE": (3, 4, self._produce),
            "BEGIN": (1, 1, self._begin),
            "COMMIT": (1, 1, lambda name: self._end(name, committed=True)),
            "ABORT": (1, 1, lambda name: self._end(name, committed=False)),
            "READ": (1, 2, self._read),
            "FENCE": (1, 1, self._fence),
            "LOG_SIZE": (0, 0, self._log_size),
            "RESTART": (0, 0, self._restart),
            "HELP": (0, 0, lambda: _reply(COMMANDS, commands=COMMANDS)),
        }

    def answer(self, line: str) -> Answer | None:
        """The answer to one line; None for an empty one or a comment."""
        words = _words(line)
        if not words:
            return None
        name, *arguments = words
        command = self._commands.get(name)
        if command is None:
            message = f"unknown command '{name}' (there are {', '.join(self._commands)})"
            return Answer(name, _error(message), understood=False)
        least, most, work = command
        if not least <= len(arguments) <= most:
            usage = next(entry for entry in COMMANDS.splitlines() if entry.startswith(name)).split("  ")[0]
            return Answer(name, _error(f"{name} is called like this: {usage}"), understood=False)
        try:
            return Answer(name, work(*arguments))
        except NotUnderstood as error:
            return Answer(name, _error(str(error)), understood=False)
        except Refused as refused:
            return Answer(name, _error(refused.message))

    def close(self) -> None:
        self._log.close()

    def _open(self) -> Log:
        return Log.open(DiskFiles(self._directory), new_cluster_id=str(uuid.uuid4()))

    def _init(self, name: str) -> Reply:
        producer_id = self._log.new_producer_id(_now_ms())
        producer = self._producers[name] = Producer(f"{name}/{producer_id}", producer_id, 0)
        self._log.sync_now()
        return _identity(producer.producer_id, producer.epoch)

    def _produce(self, name: str, sequence: str, payload: str, place: str = _TOPIC) -> Reply:
        producer = self._named(name)
        if _NUMBER.fullmatch(sequence) is None or int(sequence) > SEQUENCE_MASK:
            raise NotUnderstood(f"'{sequence}' is no sequence number: 0 to {SEQUENCE_MASK} are")
        owner = self._log.state.transactions.described(producer.transactional_id)
        if owner is not None and owner.owner.producer_epoch > producer.epoch:
            return _error(f"fenced (epoch {producer.epoch}, current {owner.owner.producer_epoch})")
        topic, index = self._place(place)
        partition = self._log.state.partitions.at(topic.number, index)
        if partition is None:
            raise AssertionError("the partition has just been made")
        now_ms = _now_ms()
        batch = encode_batch(
            [Record(payload.encode(errors="surrogateescape"), timestamp_ms=now_ms)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=int(sequence),
            transactional=self._log.state.transactions.is_open(producer.producer_id),
        )
        header = check_sent(batch, topic.parsed.max_message_bytes)
        appended = self._log.append(topic, partition, header, batch, now_ms, Sender(joins=True))
        self._log.sync_now()
        if appended.outcome is Outcome.ACCEPTED:
            return _ok(f"OK offset:{appended.base_offset}", offset=appended.base_offset)
        if appended.outcome is Outcome.DUPLICATE:
            return _duplicate(f"DUPLICATE offset:{appended.base_offset}", offset=appended.base_offset)
        return _error(appended.message or "")

    def _begin(self, name: str) -> Reply:
        producer = self._named(name)
        if self._log.state.transactions.described(producer.transactional_id) is None:
            self._claim(producer)
        opened = self._log.state.transaction_rules.decide_add_partitions(*producer, (), _now_ms())
        if opened is None:
            return _error(f"a transaction of {name} is open already")
        self._log.commit(opened)
        self._log.sync_now()
        return _ok()

    def _end(self, name: str, *, committed: bool) -> Reply:
        producer = self._named(name)
        if self._log.state.transactions.described(producer.transactional_id) is None:
            return _error(f"{name} never began a transaction")
        end = self._log.state.transaction_rules.decide_end(
            *producer, committed, lambda: self._log.new_producer_id(_now_ms()), _now_ms(), raises_epoch=False
        )
        ended = "committed" if committed else "aborted"
        if end.entry is None:
            return _duplicate(f"DUPLICATE {ended}", ended=ended)
        self._log.commit(end.entry)
        self._log.sync_now()
        return _ok(f"OK {ended}", ended=ended)

    def _read(self, topic_name: str, isolation: str = "committed") -> Reply:
        if isolation not in _ISOLATIONS:
            raise NotUnderstood(f"'{isolation}' is neither committed nor uncommitted")
        topic = self._log.state.catalog.named(topic_name)
        if topic is None:
            raise NotUnderstood(f"there is no topic '{topic_name}', PRODUCE makes one")
        shown = []
        for partition in self._log.state.partitions.of(topic):
            place = f"{partition.index}@" if topic.partition_count > 1 else ""
            shown += [f"{place}{text}" for text in _records(partition, isolation == "committed")]
        return _reply(" ".join(shown) or "(nothing)", records=shown)

    def _fence(self, name: str) -> Reply:
        producer = self._named(name)
        if self._log.state.transactions.described(producer.transactional_id) is None:
            self._claim(producer)
        return _identity(producer.producer_id, self._claim(producer))

    def _claim(self, producer: Producer) -> int:
        """Claim the producer's transactional id, from itself or from another owner; return the new epoch."""
        claim = self._log.state.transaction_rules.decide_init(
            producer.transactional_id, _TIMEOUT_MS, None, lambda: producer.producer_id, _now_ms()
        )
        for entry in claim.entries:
            self._log.commit(entry)
        self._log.sync_now()
        return claim.producer_epoch

    def _log_size(self) -> Reply:
        return _reply(str(self._size()), records=self._size())

    def _size(self) -> int:
        batches_of = (partition.batches(0, partition.end_mark()) for partition in self._log.state.partitions.all())
        return sum(header.record_count for batches in batches_of for header, _ in batches if not header.is_control)

    def _restart(self) -> Reply:
        self._log.abandon()
        self._log = self._open()
        return _ok(f"RESTARTED with {self._size()} records", records=self._size())

    def _named(self, name: str) -> Producer:
        producer = self._producers.get(name)
        if producer is None:
            raise NotUnderstood(f"there is no producer '{name}', INIT makes one")
        return producer

    def _place(self, place: str) -> tuple[Topic, int]:
        """The topic and partition named by topic or topic:partition, created if they do not exist."""
        name, colon, number = place.partition(":")
        if colon and _NUMBER.fullmatch(number) is None:
            raise NotUnderstood(f"'{place}' is no topic:partition")
        index = int(number or 0)
        catalog = self._log.state.catalog
        topic = catalog.named(name)
        if topic is None:
            self._log.commit(catalog.decide_create(name, index + 1, {}, os.urandom(16), _now_ms()))
        elif topic.partition_count <= index:
            self._log.commit(catalog.decide_partitions(name, index + 1))
        return catalog.existing(name), index


def _identity(producer_id: int, epoch: int) -> Reply:
    return _ok(f"PID {producer_id} EPOCH {epoch}", producer_id=producer_id, epoch=epoch)


def _records(partition: PartitionLog, committed: bool) -> Iterator[str]:
    """Offset and payload of each record that a consumer gets, and a word if an open transaction stops it."""
    until = partition.stable if committed else partition.readable
    for header, batch in partition.batches(0, until):
        reached = partition.aborted.between(header.base_offset, header.next_offset)
        is_aborted = header.is_transactional and any(producer_id == header.producer_id for producer_id, _ in reached)
        if not header.is_control and not (committed and is_aborted):
            for decoded in decode_batches(batch):
                yield from (f"{record.offset}:{_payload(record)}" for record in decoded.records)
    if until.offset < partition.readable.offset:
        yield f"{until.offset}:(open)"


def _payload(record: Record) -> str:
    text = (record.value or b"").decode(errors="surrogateescape")
    return f'"{text}"' if " " in text else text


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
