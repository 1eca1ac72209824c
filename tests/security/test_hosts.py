"""A Host header names this machine, or it may be a name that somebody has had resolve to it."""

import pytest

from semel.security.hosts import is_own_host

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
