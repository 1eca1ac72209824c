"""Checks what the application's `scope` returns: the name of a caller, whose keys nobody else may meet.

Pure. A name that several callers share gives one of them the answers of the others, and a name that changes has a
repeated request executed again. Both look right in every test with one client, so the first request is refused. This
module must never guess a name.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from semel.database.kinds import WrongKind

# The texts of values that stand for no caller, as `str(user.id)` and templates make them.
_NOBODY: Final = frozenset({"None", "null", "undefined", "AnonymousUser"})
# What proxies add to a request.
_OF_PROXIES: Final = (
    *("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-client-ip"),
    *("cf-connecting-ip", "true-client-ip", "fastly-client-ip", "x-envoy-external-address"),
)
# What separates the addresses in these headers, with the signs around them.
_BETWEEN_ADDRESSES: Final = re.compile(r'[\s,;="]+|\[|\](?::\d+)?')

_REMEDY: Final = (
    "let scope return the name of the caller whom the application has authenticated, such as the id of its account, "
    "and None for a stranger"
)


class UnusableScope(RuntimeError):
    """The function `scope` returns a name that several callers share, or that changes."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: {_REMEDY}")


def checked_caller(caller: object, headers: Mapping[str, str], native: Mapping[str, Any]) -> str | None:
    """The name; None for a stranger. Raises if a request of another caller might get the same name, or the same request
    another one."""
    if caller is None or caller == "":
        return None
    if not isinstance(caller, str):
        raise WrongKind(f"scope has to return text, and has returned a value of the kind {type(caller).__qualname__}")
    if caller.strip() in _NOBODY:
        raise UnusableScope(f"scope has returned {caller!r}, so all strangers would be one caller")
    host, ports = _peer(native)
    if caller in ports:
        raise UnusableScope(
            "scope has returned the client's address with its port, which is another one when the request is repeated "
            "over a new connection, so that the request would be executed again"
        )
    if caller != host and caller in _addresses(headers) and _is_address(caller):
        raise UnusableScope(
            "scope has returned an address from a header, which any client can send to get the answers of others; and "
            "the address of a client changes with its network. A server that trusts its proxy replaces its address"
        )
    if caller == host and _is_behind_proxy(host, headers):
        raise UnusableScope(
            "scope has returned the address of a proxy, so all its clients would share their keys, and each would get "
            "the answers of others"
        )
    return caller


def _peer(native: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """The address of the other end of the connection, and the texts in which it has its port."""
    client = native.get("client") or (native.get("REMOTE_ADDR"), native.get("REMOTE_PORT"))
    host, port = client[0], client[1]
    if not host or not port:
        return str(host or ""), frozenset()
    return str(host), frozenset({f"{host}:{port}", f"[{host}]:{port}", str(client), str((host, port))})


def _is_behind_proxy(host: str, headers: Mapping[str, str]) -> bool:
    """Whether a proxy has passed this request on from somebody else. A server that trusts its proxy replaces
    the proxy's address by the one from the header."""
    return any(name in headers for name in _OF_PROXIES) and not any(
        # Some proxies add the port.
        address == host or address.startswith(f"{host}:")
        for address in _addresses(headers)
    )


def _addresses(headers: Mapping[str, str]) -> list[str]:
    """What may be an address in the headers of proxies."""
    values = [headers[name] for name in _OF_PROXIES if name in headers]
    return [address for value in values for address in _BETWEEN_ADDRESSES.split(value)]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
