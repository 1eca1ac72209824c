"""What `--listen` and `--advertise` promise: each listener tells its clients its own address, and none is open by
mistake."""

from pathlib import Path

import pytest

from asking import Asker
from semel.testing.ports import free_port
from semel.testing.served import ServedBroker
from semel.wire.versions import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA
from semel_command import semel, semel_failure


def addresses_told(bootstrap: str) -> set[tuple[str, int]]:
    """Where a client that connected here is sent next, whichever way it asks."""
    with Asker(bootstrap) as ask:
        (broker,) = ask(
            METADATA, topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ).brokers
        (described,) = ask(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False).brokers
        (coordinator,) = ask(FIND_COORDINATOR, key_type=0, coordinator_keys=["readers"]).coordinators
    return {(one.host, one.port) for one in (broker, described, coordinator)}


def test_each_listener_tells_its_clients_its_own_advertised_address(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    broker = ServedBroker(
        tmp_path,
        f"--listen=INSIDE=PLAINTEXT://localhost:{inside}",
        f"--listen=OUTSIDE=PLAINTEXT://127.0.0.1:{outside}",
        "--advertise=OUTSIDE=log.example.org:7777",
        "--advertise=INSIDE=inside.example.org",
    )
    with broker:
        assert f"INSIDE=PLAINTEXT://localhost:{inside}, OUTSIDE=PLAINTEXT://127.0.0.1:{outside}" in broker.addresses
        first = broker.addresses.split(", ")[0].removeprefix("PLAINTEXT=PLAINTEXT://")
        host, _, port = first.rpartition(":")
        assert addresses_told(first) == {(host, int(port))}
        assert addresses_told(f"localhost:{inside}") == {("inside.example.org", inside)}
        assert addresses_told(f"127.0.0.1:{outside}") == {("log.example.org", 7777)}


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "10.1.2.3:9092", "[::]:0", "OUT=PLAINTEXT://broker.local:1"])
def test_a_plain_listener_beyond_the_loopback_is_refused(address: str, tmp_path: Path) -> None:
    told = semel_failure("serve", f"--data={tmp_path / 'data'}", f"--listen={address}")
    assert "every client that reaches it may read and change everything" in told
    assert "--insecure" in told
    assert not (tmp_path / "data").exists()


def test_a_plain_listener_beyond_the_loopback_is_served_to_those_who_insist(tmp_path: Path) -> None:
    with ServedBroker(
        tmp_path, "--listen=ALL=PLAINTEXT://0.0.0.0:0", "--insecure", "--advertise=ALL=localhost"
    ) as broker:
        port = int(broker.addresses.rpartition(":")[2])
        assert addresses_told(f"127.0.0.1:{port}") == {("localhost", port)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--listen=A=HTTP://127.0.0.1:1",), "'HTTP' is not a protocol of a listener: choose PLAINTEXT"),
        (
            ("--listen=A=B=127.0.0.1:1",),
            "'A=B=127.0.0.1:1' is not a listener: write HOST:PORT or NAME=PROTOCOL://HOST:PORT",
        ),
        (("--listen=PLAINTEXT://127.0.0.1",), "'127.0.0.1' is not an address"),
        (("--listen=127.0.0.1:1", "--listen=127.0.0.1:2"), "two listeners are called PLAINTEXT"),
        (("--listen=A=127.0.0.1:1", "--advertise=B=host"), "there is no listener 'B', only A"),
        (("--listen=A=127.0.0.1:1", "--listen=B=127.0.0.1:2", "--advertise=h"), "say --advertise NAME=h"),
        (("--listen=127.0.0.1:1", "--advertise=a=b=c"), "'a=b=c' is not an address to advertise"),
    ],
)
def test_what_is_no_listener_is_answered_with_one_line(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    assert told in semel_failure("serve", f"--data={tmp_path}", *options)


def test_a_listener_whose_port_is_taken_is_named(tmp_path: Path) -> None:
    """And nothing is left behind: the other listeners are closed, and the directory is free for the next broker."""
    with ServedBroker(tmp_path / "first") as first:
        taken = f"--listen=B=PLAINTEXT://{first.bootstrap}"
        told = semel_failure("serve", f"--data={tmp_path / 'data'}", "--listen=A=127.0.0.1:0", taken)
        assert told == f"{first.bootstrap} is in use; choose another port, or 0 for any"
    with ServedBroker(tmp_path / "data"):
        pass


def test_two_listeners_at_one_address_are_told_so_before_any_of_them_has_started(tmp_path: Path) -> None:
    """The system lets both take the port, and only one of them listen."""
    address = f"127.0.0.1:{free_port()}"
    options = (f"--listen=A={address}", f"--listen=B={address}")
    told = semel("serve", f"--data={tmp_path}", "--log-level=info", *options)
    assert told.returncode == 1
    assert "event=started" not in told.stderr
    assert f"{address} is in use; choose another port, or 0 for any" in told.stderr
