"""What `free_port` is promised to give out: a port that stays free until the program is up that is to have it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from semel.testing import ports
from semel.testing.ports import free_port

ASK = "from semel.testing import ports; ports._PORTS = range({}, {}); print(ports.free_port())"


def test_no_two_callers_get_the_same_port_though_neither_listens_yet() -> None:
    assert len({free_port() for _ in range(50)}) == 50


def test_another_process_does_not_get_a_port_that_was_given_out() -> None:
    """As two test runs on one machine: a client of the one would talk to a server of the other."""
    port = free_port()
    found = subprocess.run([sys.executable, "-c", ASK.format(port, port + 1)], capture_output=True, text=True)
    assert "is free" in found.stderr


def test_a_port_on_which_somebody_listens_is_not_given_out() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        port = server.getsockname()[1]
        while ports._held:
            os.close(ports._held.popleft())
        found = subprocess.run([sys.executable, "-c", ASK.format(port, port + 1)], capture_output=True, text=True)
        assert "is free" in found.stderr


def test_no_connection_gets_such_a_port() -> None:
    """The system gives out others, to connections and to programs that take port 0."""
    limits = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(limits.read_text().split()[0]) if limits.exists() else 49_152
    if lowest < 32_768:
        pytest.skip(f"this system gives out ports from {lowest} on")
    assert free_port() < lowest


def test_a_process_holds_no_more_than_some_of_them() -> None:
    for _ in range(2 * ports._HELD_MAX):
        free_port()
    assert len(ports._held) == ports._HELD_MAX
