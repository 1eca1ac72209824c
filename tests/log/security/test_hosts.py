"""Which hosts are this machine, or this machine alone, and how a host is shown with its port."""

import pytest

from semel.wire.hosts import is_loopback, is_own_host, shown_address

NAMES = ("Build-7", "", "::")


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:8080", "10.1.2.3:9999", "127.0.0.1:", "[::1]", "[::1]:8080"),
        *("localhost", "LocalHost:8080", "build-7", "BUILD-7:8080"),
    ],
)
def test_an_address_and_a_name_that_the_operator_has_chosen_are_its_own(host: str) -> None:
    assert is_own_host(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        *("", ":8080", "[]", "[]:8080", "[::1", "::1]", "::1]:8080", "127.0.0.1:8080:8080", "127.0.0.1:port"),
        *("[localhost]", "[127.0.0.1]", "[build-7]", "127.0.0.1/", "x[::1]", "[::1]x"),
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "[evil]:8080", "2130706433"),
        *("127.0.0.1@evil.example", "evil.example@127.0.0.1", "127.0.0.1, evil.example", "localhost\n", "build-7."),
    ],
)
def test_any_other_name_may_have_been_made_to_resolve_to_this_machine(host: str) -> None:
    assert not is_own_host(host, NAMES)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_only_this_machine_connects_to_the_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.1.2.3", "fe80::1", "build-7", "localhost.evil.example"])
def test_other_machines_may_connect_to_any_other_host(host: str) -> None:
    assert not is_loopback(host)


def test_an_address_is_shown_so_that_its_port_stands_apart() -> None:
    assert [shown_address(host, 9092) for host in ("build-7", "10.1.2.3", "::1")] == [
        *("build-7:9092", "10.1.2.3:9092", "[::1]:9092"),
    ]
