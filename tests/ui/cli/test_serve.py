"""What `semel serve` promises: one line when it is ready, a clean stop, and one line for what keeps it from serving."""

import contextlib
import errno
import io
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventually import eventually
from forked import SECONDS_MAX
from semel.log.storage import checkpoint
from semel.log.storage.files import DiskFiles
from semel.testing.ports import free_port
from semel.testing.served import ServedBroker
from semel.ui.cli.display import tell
from semel_command import semel, semel_failure, semel_lines, started

READY = re.compile(r"semel ready on (127\.0\.0\.1:\d+) in \d+\.\d\d s\n")

Serve = Callable[..., ServedBroker]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `semel serve` on the test's directory, with any options."""
    with contextlib.ExitStack() as running:
        yield lambda *options: running.enter_context(ServedBroker(tmp_path / "data", *options))


@pytest.fixture
def data(serve: Serve, tmp_path: Path) -> Path:
    """A data directory that a broker has left in order."""
    broker = serve()
    semel_lines("produce", "orders", f"--bootstrap={broker.bootstrap}", stdin="3 apples\n")
    broker.stop()
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["a file", "an abstract name"])
def test_the_service_manager_learns_when_it_serves_and_when_it_stops(name: str, tmp_path: Path) -> None:
    """`Type=notify` of systemd."""
    # The address of such a socket has 107 bytes at most, and TMPDIR may have as many.
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as short,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        address = f"{short}/manager" if name == "a file" else f"@semel-{os.getpid()}-{tmp_path.name}"
        manager.settimeout(SECONDS_MAX)
        manager.bind(address.replace("@", "\0"))
        environment = {**os.environ, "NOTIFY_SOCKET": address}
        process = started("serve", "--listen=127.0.0.1:0", f"--data={tmp_path / 'data'}", env=environment)
        assert process.stdout is not None
        ready = READY.fullmatch(process.stdout.readline())
        assert ready is not None
        assert manager.recv(1024).decode() == f"READY=1\nSTATUS=serving clients on {ready[1]}"
        process.terminate()
        assert manager.recv(1024) == b"STOPPING=1"
    assert process.communicate(timeout=SECONDS_MAX) == ("", "")


def test_a_service_manager_that_does_not_listen_keeps_no_broker_from_serving(tmp_path: Path) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "nobody")}
    process = started("serve", "--listen=127.0.0.1:0", f"--data={tmp_path / 'data'}", env=environment)
    assert process.stdout is not None
    assert READY.fullmatch(process.stdout.readline()) is not None
    process.terminate()
    assert process.communicate(timeout=SECONDS_MAX) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_one_line_when_it_is_ready_and_stops_without_a_word_and_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = started("serve", "--listen=127.0.0.1:0", f"--data={tmp_path}")
    assert process.stdout is not None
    ready = READY.fullmatch(process.stdout.readline())
    assert ready is not None
    semel_lines("produce", "orders", f"--bootstrap={ready[1]}", stdin="3 apples\n")
    process.send_signal(number)
    assert process.communicate(timeout=SECONDS_MAX) == ("", "")
    assert process.returncode == 0
    assert "clean stop" in semel_lines("dump", str(tmp_path))[0]


def test_a_broker_serves_although_nobody_reads_that_it_is_ready(tmp_path: Path) -> None:
    """A standby says so a second time when it takes over, which may be after weeks."""
    address = f"127.0.0.1:{free_port()}"
    process = started("serve", f"--listen={address}", f"--data={tmp_path}")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert eventually(lambda: semel("topics", "list", f"--bootstrap={address}").returncode == 0)
    process.terminate()
    assert process.communicate(timeout=SECONDS_MAX) == (None, "")
    assert process.returncode == 0


def test_a_line_that_nobody_can_read_ends_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be space again on the disk for the next one."""

    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    tell("a browser was let in")


def test_what_was_acknowledged_survives_kill_9(serve: Serve) -> None:
    broker = serve()
    semel_lines("produce", "orders", f"--bootstrap={broker.bootstrap}", stdin="3 apples\n")
    broker.kill()
    broker.start()
    (line,) = semel_lines("tail", "orders", f"--bootstrap={broker.bootstrap}")
    assert "3 apples" in line


def test_metrics_are_served_where_they_were_asked_for_and_the_ready_line_says_where(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = started("serve", "--listen=127.0.0.1:0", f"--data={tmp_path}", f"--metrics={address}")
    assert process.stdout is not None
    assert process.stdout.readline().endswith(f" s, metrics on {address}\n")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS_MAX) as answer:
        assert b"semel_batches_total" in answer.read()
    process.terminate()
    process.communicate(timeout=SECONDS_MAX)


def test_topics_are_made_only_if_they_may_be(serve: Serve) -> None:
    bootstrap = serve("--no-auto-create-topics").bootstrap
    assert semel_failure("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n").startswith(
        "there is no topic 'orders'"
    )


def test_a_topic_gets_the_partitions_that_were_set_for_all(serve: Serve) -> None:
    bootstrap = serve("--partitions=3").bootstrap
    semel_lines("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n")
    listed = semel_lines("topics", "list", f"--bootstrap={bootstrap}")
    assert ["orders", "3", "1", "0"] in [line.split() for line in listed]


def test_a_directory_has_one_broker(serve: Serve, tmp_path: Path) -> None:
    first = serve()
    data = tmp_path / "data"
    assert semel_failure("serve", "--listen=127.0.0.1:0", f"--data={data}") == (
        f"{data} is in use by another broker: stop that one, or name another directory"
    )
    first.stop()
    assert first.exit_code == 0


def test_a_port_has_one_broker(serve: Serve, tmp_path: Path) -> None:
    bootstrap = serve().bootstrap
    other = f"--data={tmp_path / 'other'}"
    told = f"{bootstrap} is in use; choose another port, or 0 for any"
    assert semel_failure("serve", f"--listen={bootstrap}", other) == told
    assert semel_failure("serve", "--listen=127.0.0.1:0", f"--metrics={bootstrap}", other) == told


@pytest.mark.parametrize("listen", ["9092", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_what_is_no_address_is_said_to_be_none(listen: str, tmp_path: Path) -> None:
    assert "is not an address: write HOST:PORT" in semel_failure("serve", f"--listen={listen}", f"--data={tmp_path}")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    told = semel_failure("serve", "--listen=127.0.0.1:0", f"--data={file}")
    assert told == f"{file}: this is a file; --data takes a directory, and makes one that is missing"
    for data in (file / "data", Path("/proc/semel")):
        assert semel_failure("serve", "--listen=127.0.0.1:0", f"--data={data}").startswith(f"{data}: ")
    assert file.read_text() == "no directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "ermission" in semel_failure("serve", "--listen=127.0.0.1:0", f"--data={tmp_path / 'data'}")


def test_a_damaged_directory_is_refused_with_file_and_offset(data: Path) -> None:
    path = data / checkpoint.NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    told = semel_failure("serve", "--listen=127.0.0.1:0", f"--data={data}")
    assert str(path) in told
    assert "offset" in told


def test_a_directory_whose_journal_is_gone_is_refused_with_the_way_on(serve: Serve, tmp_path: Path) -> None:
    broker = serve()
    semel_lines("produce", "orders", f"--bootstrap={broker.bootstrap}", stdin="3 apples\n")
    broker.kill()
    data = tmp_path / "data"
    shutil.rmtree(data / "journal")
    (data / "journal").mkdir()
    said = semel_failure("serve", f"--data={data}", "--listen=127.0.0.1:0")
    where = re.escape(f"the data directory cannot be used: {data}/journal/")
    assert re.fullmatch(
        f"{where}[0-9a-f]{{16}}: missing, the checkpoint names it.*; "
        f"bring the file back, or see semel repair {data} for a way on without it",
        said,
    )


def test_no_log_is_begun_where_the_operator_knows_that_there_is_one(tmp_path: Path) -> None:
    """The directory is the place where a disk is not mounted."""
    arguments = ("serve", f"--data={tmp_path}", "--listen=127.0.0.1:0", "--must-have-log")
    assert "holds no log, and none may be begun there" in semel_failure(*arguments)
    missing = semel_failure("serve", f"--data={tmp_path}/none", "--listen=127.0.0.1:0", "--must-have-log")
    assert missing == f"{tmp_path}/none: no such directory, and --must-have-log makes none"
    assert not (tmp_path / "none").exists()


def test_a_directory_of_a_newer_version_is_refused_as_such_and_both_formats_are_named(data: Path) -> None:
    files = DiskFiles(data)
    found = checkpoint.read(files)
    assert found is not None
    state, packed = found
    checkpoint.write(files, {**state, "format": 99}, [bytes(packed)])
    told = semel_failure("serve", "--listen=127.0.0.1:0", f"--data={data}")
    assert "written in format 99 by another version of semel" in told
    assert f"reads {checkpoint.FORMAT}" in told


def test_a_limit_that_is_none_is_answered_with_those_that_are(tmp_path: Path) -> None:
    told = semel_failure("serve", f"--data={tmp_path}", "--limit=speed=1")
    assert "there is no limit 'speed'" in told
    assert "connections_max" in told
    for value in ("many", "9" * 5_000):
        told = semel_failure("serve", f"--data={tmp_path}", f"--limit=connections_max={value}")
        assert "takes a whole number" in told


def test_a_limit_holds(serve: Serve) -> None:
    bootstrap = serve("--limit=topics_max=1").bootstrap
    semel_lines("topics", "create", "first", f"--bootstrap={bootstrap}")
    assert "POLICY_VIOLATION" in semel_failure("topics", "create", "second", f"--bootstrap={bootstrap}")


def test_a_wrong_number_of_partitions_is_a_wrong_call(tmp_path: Path) -> None:
    done = semel("serve", f"--data={tmp_path}", "--partitions=0")
    assert done.returncode == 2
    assert "'0' is not a whole number from 1 on" in done.stderr
