"""What `semel serve` promises: one line when it is ready, a clean stop, and one line for what keeps it from serving."""

import re
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from semel_command import SECONDS_MAX, semel, semel_failure, semel_lines, started

from semel.storage import checkpoint

READY = re.compile(r"semel ready on (127\.0\.0\.1:\d+) in \d+\.\d\d s\n")

Serve = Callable[..., tuple[Popen[str], str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `semel serve`; answers the process and its address once it is ready."""
    processes = []

    def start(*words: str, data: Path = tmp_path / "data") -> tuple[Popen[str], str]:
        process = started("serve", "--listen=127.0.0.1:0", f"--data={data}", *words)
        processes.append(process)
        assert process.stdout is not None
        ready = READY.fullmatch(process.stdout.readline())
        assert ready is not None
        return process, ready[1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_it_says_one_line_when_it_is_ready_and_nothing_more(serve: Serve) -> None:
    process, bootstrap = serve()
    semel_lines("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=SECONDS_MAX) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_leaves_nothing_to_replay(serve: Serve, tmp_path: Path, number: signal.Signals) -> None:
    process, bootstrap = serve()
    semel_lines("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n")
    process.send_signal(number)
    assert process.wait(SECONDS_MAX) == 0
    assert "clean stop" in semel_lines("dump", str(tmp_path / "data"))[0]


def test_what_was_acknowledged_survives_kill_9(serve: Serve) -> None:
    process, bootstrap = serve()
    semel_lines("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n")
    process.kill()
    process.wait(SECONDS_MAX)
    _, bootstrap = serve()
    (line,) = semel_lines("tail", "orders", f"--bootstrap={bootstrap}")
    assert "3 apples" in line


def test_metrics_are_served_where_they_were_asked_for(serve: Serve) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    serve(f"--metrics={address}")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS_MAX) as answer:
        assert b"semel_batches_total" in answer.read()


def test_topics_are_made_only_if_they_may_be(serve: Serve) -> None:
    _, bootstrap = serve("--no-auto-create-topics")
    assert semel_failure("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n").startswith(
        "there is no topic 'orders'"
    )


def test_a_topic_gets_the_partitions_that_were_set_for_all(serve: Serve) -> None:
    _, bootstrap = serve("--partitions=3")
    semel_lines("produce", "orders", f"--bootstrap={bootstrap}", stdin="3 apples\n")
    assert ["orders", "3", "1"] in [line.split() for line in semel_lines("topics", "list", f"--bootstrap={bootstrap}")]


def test_a_directory_has_one_broker(serve: Serve, tmp_path: Path) -> None:
    serve()
    data = tmp_path / "data"
    assert semel_failure("serve", "--listen=127.0.0.1:0", f"--data={data}") == f"{data} is in use by another broker"


def test_a_port_has_one_broker(serve: Serve, tmp_path: Path) -> None:
    _, bootstrap = serve()
    other = f"--data={tmp_path / 'other'}"
    told = f"{bootstrap} is in use; choose another port, or 0 for any"
    assert semel_failure("serve", f"--listen={bootstrap}", other) == told
    assert semel_failure("serve", "--listen=127.0.0.1:0", f"--metrics={bootstrap}", other) == told


@pytest.mark.parametrize("listen", ["9092", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_what_is_no_address_is_said_to_be_none(listen: str, tmp_path: Path) -> None:
    assert "is no address: HOST:PORT is" in semel_failure("serve", f"--listen={listen}", f"--data={tmp_path}")


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert semel_failure("serve", "--listen=127.0.0.1:0", f"--data={file}").startswith(f"{file}: ")
    below = file / "data"
    assert semel_failure("serve", "--listen=127.0.0.1:0", f"--data={below}").startswith(f"{below}: ")


def test_a_damaged_directory_is_refused_with_file_and_offset(serve: Serve, tmp_path: Path) -> None:
    process, _ = serve()
    process.terminate()
    process.wait(SECONDS_MAX)
    path = tmp_path / "data" / checkpoint.NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    told = semel_failure("serve", "--listen=127.0.0.1:0", f"--data={path.parent}")
    assert str(path) in told
    assert "offset" in told


def test_a_directory_of_a_newer_version_is_refused_as_such(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = serve()
    process.terminate()
    process.wait(SECONDS_MAX)
    data = tmp_path / "data"
    _write_in_another_format(data, monkeypatch)
    told = semel_failure("serve", "--listen=127.0.0.1:0", f"--data={data}")
    assert f"written in format {checkpoint.FORMAT} by another version of semel" in told


def _write_in_another_format(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semel.storage.files import DiskFiles

    files = DiskFiles(data)
    found = checkpoint.read(files)
    assert found is not None
    state, packed = found
    del state["format"]
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    checkpoint.write(files, state, [bytes(packed)])


def test_a_limit_that_is_none_is_answered_with_those_that_are(tmp_path: Path) -> None:
    told = semel_failure("serve", f"--data={tmp_path}", "--limit=speed=1")
    assert "there is no limit 'speed'" in told
    assert "connections_max" in told
    assert "takes a whole number" in semel_failure("serve", f"--data={tmp_path}", "--limit=connections_max=many")


def test_a_limit_holds(serve: Serve) -> None:
    _, bootstrap = serve("--limit=topics_max=1")
    semel_lines("topics", "create", "first", f"--bootstrap={bootstrap}")
    assert "POLICY_VIOLATION" in semel_failure("topics", "create", "second", f"--bootstrap={bootstrap}")


def test_a_wrong_number_of_partitions_is_a_wrong_call(tmp_path: Path) -> None:
    done = semel("serve", f"--data={tmp_path}", "--partitions=0")
    assert done.returncode == 2
    assert "'0' is no number from 1 on" in done.stderr
