"""Holds the requests to a registry to what they promise: who asks, how often, and what is said when nothing comes."""

from __future__ import annotations

import socket

import pytest
from registries import SmallRegistry

from semel.spark.registry.client import RegistryRefused, registry_at

BUSY = (503, b"{}", {})
ONE = {"schema": '"string"'}


def test_a_registry_that_is_busy_for_a_while_is_asked_again(small_registry: SmallRegistry) -> None:
    small_registry.answer("/subjects/orders/versions", ONE)
    small_registry.answers = [BUSY, BUSY]
    [version] = registry_at(small_registry.url, {}).versions("orders")
    assert (version.id, version.kind, version.texts) == (1, "AVRO", ('"string"',))
    assert len(small_registry.asked) == 4


def test_a_registry_that_stays_busy_is_named(small_registry: SmallRegistry) -> None:
    small_registry.answers = [(503, b'{"message": "no leader"}', {})] * 2
    with pytest.raises(RegistryRefused, match=f"{small_registry.url} does not give subject orders: 503 no leader"):
        registry_at(small_registry.url, {"max.retries": "1"}).versions("orders")
    assert len(small_registry.asked) == 2


def test_what_another_attempt_does_not_change_is_asked_once(small_registry: SmallRegistry) -> None:
    small_registry.answers = [(401, b'{"message": "Unauthorized"}', {})]
    with pytest.raises(RegistryRefused, match="401 Unauthorized"):
        registry_at(small_registry.url, {"basic.auth.user.info": "anna:secret"}).versions("orders")
    assert len(small_registry.asked) == 1


@pytest.mark.parametrize(
    ("options", "login"),
    [({"basic.auth.user.info": "anna:secret"}, "Basic YW5uYTpzZWNyZXQ="), ({"bearer.auth.token": "t"}, "Bearer t")],
)
def test_a_login_goes_along_and_is_never_shown(
    small_registry: SmallRegistry, options: dict[str, str], login: str
) -> None:
    small_registry.answer("/subjects/orders/versions", ONE)
    registry = registry_at(small_registry.url, options)
    assert len(registry.versions("orders")) == 1
    assert {given for _, given in small_registry.asked} == {login}
    assert "secret" not in repr(registry)
    assert "'t'" not in repr(registry)


def test_a_login_is_not_carried_to_another_machine(small_registry: SmallRegistry) -> None:
    other = SmallRegistry()
    small_registry.answers = [(302, b"", {"Location": f"{other.url}/subjects/orders/versions"})]
    with pytest.raises(RegistryRefused, match="302"):
        registry_at(small_registry.url, {"bearer.auth.token": "t"}).versions("orders")
    assert other.asked == []
    other.stop()


def test_a_registry_that_is_not_there_or_says_nothing_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RegistryRefused, match=f"{silent} does not give subject orders: timed out"):
            registry_at(silent, {"timeout": "1", "max.retries": "0"}).versions("orders")
    with pytest.raises(RegistryRefused, match="Connection refused"):
        registry_at(silent, {"max.retries": "0"}).versions("orders")


@pytest.mark.parametrize("content", [b"<html>", b"[", b"", b"\xff"])
def test_an_answer_that_is_no_json_is_refused(small_registry: SmallRegistry, content: bytes) -> None:
    small_registry.answers = [(200, content, {})]
    with pytest.raises(RegistryRefused, match="does not give subject orders: "):
        registry_at(small_registry.url, {"max.retries": "0"}).versions("orders")


def test_a_version_is_asked_for_once(small_registry: SmallRegistry) -> None:
    small_registry.answer("/subjects/orders/versions", ONE)
    for _ in range(3):
        registry_at(small_registry.url, {}).versions("orders")
    assert [path for path, _ in small_registry.asked].count("/subjects/orders/versions/1?deleted=true") == 1


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("127.0.0.1:8081", {}, "has to look like http://HOST:PORT"),
        ("ftp://host", {}, "has to look like http://HOST:PORT"),
        ("http://anna:secret@host", {}, "holds a login"),
        ("http://host", {"ssl.ca.locations": "x"}, "option ssl.ca.locations is not known; was ssl.ca.location meant?"),
        ("http://host", {"timeout": "soon"}, "option timeout='soon' is no such number"),
        ("http://host", {"basic.auth.user.info": "a:b", "bearer.auth.token": "c"}, "two logins"),
        ("https://host", {"ssl.key.location": "key"}, "ssl.key.location needs ssl.certificate.location"),
    ],
)
def test_what_a_user_gets_wrong_is_refused_by_its_name(url: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(RegistryRefused) as refused:
        registry_at(url, options)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)
