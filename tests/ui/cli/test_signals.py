"""Holds how commands end that are told to end: alike by every signal, without a word, and with nothing left behind.

Ctrl-C reaches all processes of a terminal at once, and so it is sent here to the whole group of the command.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forked import SECONDS_MAX
from left_behind import processes_about
from semel.testing.broker import FaultyBroker
from semel.ui.demo.driver import processes_of_session
from semel_command import SEMEL, semel_lines

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command as a terminal does, in a group of its own, with a directory of its own for what it makes."""
    processes = []

    def started(*words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [SEMEL, *words]
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment, process_group=0
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Send the signal to whom it is usually sent; what the command says from then on."""
    if number == signal.SIGTERM:
        process.send_signal(number)
    else:
        os.killpg(process.pid, number)
    # Not by `communicate`, which would end the input: that is an end, too.
    process.wait(SECONDS_MAX)
    said, complaints = process.communicate()
    assert complaints == ""
    return said


def line_with(process: subprocess.Popen[str], text: str) -> None:
    """Return when the command has said this."""
    assert process.stdout is not None
    while text not in process.stdout.readline():
        assert process.poll() is None


@pytest.mark.parametrize("number", ENDINGS)
def test_a_command_that_waits_for_more_ends_at_once(start: Start, number: signal.Signals) -> None:
    lab = start("lab")
    assert lab.stdin is not None
    lab.stdin.write("LOG_SIZE\n")
    lab.stdin.flush()
    line_with(lab, "0")
    assert end(lab, number) == ""
    assert lab.returncode == 128 + number


@pytest.mark.parametrize("number", ENDINGS)
def test_a_signal_that_strikes_where_python_drops_errors_is_not_lost(number: signal.Signals) -> None:
    program = f"""
import os, threading, weakref
from semel.ui import cli
from semel.ui.cli import lab

class Thing:
    pass

def run(options):
    thing = Thing()
    signalling = weakref.ref(thing, lambda _: os.kill(os.getpid(), {number:d}))
    del thing
    threading.Event().wait()

lab.run = run
cli.main(["lab"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


def test_a_signal_that_is_sent_again_while_its_loss_is_being_noted_is_not_lost() -> None:
    """On a busy machine the thread that sends again may be faster than the main thread is through with noting."""
    program = """
import os, signal, threading, weakref
from semel.ui import cli
from semel.ui.cli import lab

write = os.write

class Thing:
    pass

def write_and_strike(file, data):
    written = write(file, data)
    os.kill(os.getpid(), signal.SIGTERM)
    return written

def run(options):
    os.write = write_and_strike
    thing = Thing()
    signalling = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
    threading.Event().wait()

lab.run = run
cli.main(["lab"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize("number", ENDINGS)
def test_a_signal_that_strikes_just_before_a_call_that_blocks_is_not_lost(number: signal.Signals) -> None:
    """Python has noted the signal then, and the system does not interrupt the call, because it began later."""
    program = f"""
import _thread, os, sys, threading
from semel.ui import cli
from semel.ui.cli import lab

def strike(may):
    may.acquire()
    _thread.interrupt_main({number:d})

def run(options):
    nothing, _ = os.pipe()
    # Only a call that blocks lets another thread run from here on.
    sys.setswitchinterval(1000)
    may = threading.Lock()
    may.acquire()
    threading.Thread(target=strike, args=(may,), daemon=True).start()
    may.release()
    os.read(nothing, 1)

lab.run = run
cli.main(["lab"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("number", ENDINGS)
def test_an_error_that_a_library_raises_in_place_of_the_end_is_not_shown(number: signal.Signals) -> None:
    """As librdkafka's does, where the signal strikes while it reads its configuration."""
    program = f"""
import os
import threading
from semel.ui import cli
from semel.ui.cli import lab

def run(options):
    try:
        os.kill(os.getpid(), {number:d})
        threading.Event().wait()
    except SystemExit:
        raise TypeError("expected config value to be unicode string")

lab.run = run
cli.main(["lab"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("number", ENDINGS)
def test_who_writes_says_how_far_it_has_come_and_who_follows_has_done_its_work(
    start: Start, number: signal.Signals, semel_broker: FaultyBroker
) -> None:
    semel_lines("topics", "create", "payments", "--bootstrap", semel_broker.bootstrap)
    writer = start("produce", "payments", "--bootstrap", semel_broker.bootstrap)
    reader = start("tail", "payments", "--follow", "--bootstrap", semel_broker.bootstrap)
    for cents in ("100", "200"):
        assert writer.stdin is not None
        writer.stdin.write(f"{cents}\n")
        writer.stdin.flush()
        line_with(reader, f"value={cents}")
    # The second one is there, and its answer may be on its way.
    assert re.match("(1 record|2 records) acknowledged", end(writer, number))
    assert writer.returncode == 128 + number
    assert end(reader, number) == ""
    assert reader.returncode == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.slow) for number in ENDINGS[1:])]
)
@pytest.mark.parametrize(
    ("words", "topic"),
    [(("chaos", "--seconds", "1000"), "chaos"), (("chaos", "copy"), "target")],
    ids=("chaos", "copy"),
)
def test_chaos_takes_its_processes_and_its_directory_along(
    start: Start, tmp_path: Path, words: tuple[str, ...], topic: str, number: signal.Signals
) -> None:
    chaos = start(*words)
    # From then on records are on their way, and their client calls back.
    while not any(path.stat().st_size for path in tmp_path.glob(f"semel-chaos-*/topics/*-{topic}/*/*.log")):
        assert chaos.poll() is None
    assert end(chaos, number) == ""
    assert chaos.returncode == 128 + number
    assert processes_about(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("process", [1, 3], ids=("broker", "worker"))
def test_a_signal_that_strikes_while_a_process_is_started_leaves_none_behind(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, process: int
) -> None:
    program = f"""
import signal, subprocess
from semel.ui import cli

class Struck(subprocess.Popen):
    count = 0

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        Struck.count += 1
        if Struck.count == {process}:
            # It runs, and nobody has been told of it.
            signal.raise_signal(signal.SIGTERM)

subprocess.Popen = Struck
cli.main(["chaos", "copy"])
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    said = tmp_path_factory.mktemp("said") / "output"
    with said.open("w") as output:
        command = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
    # Not to the end of its complaints, which whoever it has left behind would hold open.
    command.wait(SECONDS_MAX)
    left = processes_of_session(command.pid)
    for number in left:
        os.kill(number, signal.SIGKILL)
    complaints = command.communicate()[1]
    assert (command.returncode, complaints, left) == (128 + signal.SIGTERM, "", [])
    assert list(tmp_path.iterdir()) == [], said.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "store", ["s3://bucket?endpoint=http://{}&access_key_id=k&secret_access_key=s", "postgresql://u@{}/d"]
)
def test_a_broker_that_waits_for_its_store_to_answer_ends_at_once(
    start: Start, store: str, number: signal.Signals, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = store.format(f"127.0.0.1:{mute.getsockname()[1]}")
        broker = start("serve", "--listen=127.0.0.1:0", f"--data={tmp_path}/data", f"--store={url}")
        mute.settimeout(SECONDS_MAX)
        connection, _ = mute.accept()
        with connection:
            assert end(broker, number) == ""
    assert broker.returncode == 0
