"""Asks a schema registry for the schemas of a subject: Confluent's interface over HTTP, which Apicurio, Karapace and
Redpanda have as well.

Only the driver asks, when a query is made; tasks get the schemas along with their work, and need neither the network of
the registry nor a password. This module must never show a password or a token, and never follow the registry to
another machine.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import quote, urlsplit

from semel.client.settings import unknown_option

# Far above the largest schemas that are in use.
ANSWER_BYTES_MAX: Final = 16 << 20
# A subject with more versions than this is no schema, but data. Every version costs a request when a query starts.
VERSIONS_MAX: Final = 2_000
# What is remembered for the next query, and for each batch of a `foreachBatch` that asks.
REMEMBERED_MAX: Final = 4_000
REFERENCES_DEPTH_MAX: Final = 16
_BACKOFF_SECONDS: Final = 0.2
_BACKOFF_SECONDS_MAX: Final = 5.0
# Answers that another attempt may change.
_PASSING: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_JSON: Final = "application/vnd.schemaregistry.v1+json"
# The options, as Confluent's client for Python calls them.
_OPTIONS: Final = {
    "basic.auth.user.info": "user_info",
    "bearer.auth.token": "token",
    "ssl.ca.location": "ca",
    "ssl.certificate.location": "certificate",
    "ssl.key.location": "key",
    "ssl.key.password": "key_password",
    "timeout": "timeout_seconds",
    "max.retries": "retries",
}


class RegistryRefused(ValueError):
    """What the registry, or its schemas, do not allow; the message says what to do."""


@dataclass(frozen=True)
class Registered:
    """A schema under the number that its records begin with."""

    id: int
    version: int
    kind: str
    """AVRO, JSON or PROTOBUF."""
    texts: tuple[str, ...]
    """Its text, after the texts that it refers to."""
    names: tuple[str, ...] = ()
    """By which name it refers to each of these."""


@dataclass(frozen=True)
class Registry:
    url: str
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    timeout_seconds: float = 10.0
    retries: int = 3

    def versions(self, subject: str) -> list[Registered]:
        """All versions of a subject, also those that were deleted: the topic may still have their records."""
        numbers = self._asked(f"/subjects/{quote(subject, '')}/versions?deleted=true", f"subject {subject}")
        if len(numbers) > VERSIONS_MAX:
            raise RegistryRefused(f"{self}: subject {subject} has {len(numbers)} versions; {VERSIONS_MAX} are allowed")
        return [self.version(subject, int(number)) for number in sorted(numbers)]

    def version(self, subject: str, number: int) -> Registered:
        return _version(self, subject, number)

    def latest(self, subject: str) -> int:
        answer = self._asked(f"/subjects/{quote(subject, '')}/versions/latest", f"subject {subject}")
        return int(answer["version"])

    def id_of(self, subject: str, text: str, kind: str, *, register: bool) -> int:
        """The number of a schema, which is registered if it may be."""
        path = f"/subjects/{quote(subject, '')}" + ("/versions" if register else "")
        body = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        remedy = "" if register else "; to_registry(..., register=True) registers it"
        return int(self._asked(path, f"this schema under subject {subject}", body, remedy)["id"])

    def _fetched(self, subject: str, number: int, depth: int) -> Registered:
        where = f"subject {subject}, version {number}"
        if depth > REFERENCES_DEPTH_MAX:
            raise RegistryRefused(f"{self}: {where} refers to schemas more than {REFERENCES_DEPTH_MAX} deep")
        found = self._asked(f"/subjects/{quote(subject, '')}/versions/{number}?deleted=true", where)
        texts: list[str] = []
        names: list[str] = []
        for one in found.get("references") or ():
            referred = self._fetched(one["subject"], int(one["version"]), depth + 1)
            texts += [text for text in referred.texts if text not in texts]
            names.append(one["name"])
        kind = found.get("schemaType") or "AVRO"
        return Registered(int(found["id"]), number, kind, (*texts, found["schema"]), tuple(names))

    def _asked(self, path: str, what: str, body: object = None, remedy: str = "") -> Any:
        attempt = 0
        while True:
            try:
                return json.loads(self._answer(path, body))
            except urllib.error.HTTPError as error:
                with error:
                    said = _said(error)
                if error.code not in _PASSING or attempt == self.retries:
                    hint = " (is the login right? See options=...)" if error.code in (401, 403) else remedy
                    raise RegistryRefused(f"{self} does not give {what}: {error.code} {said}{hint}") from None
            except (OSError, ValueError) as error:
                if attempt == self.retries:
                    reason = getattr(error, "reason", None) or error
                    raise RegistryRefused(f"{self} does not give {what}: {reason}") from None
            time.sleep(min(_BACKOFF_SECONDS * 2**attempt, _BACKOFF_SECONDS_MAX))
            attempt += 1

    def _answer(self, path: str, body: object) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers())
        with self._opener.open(request, timeout=self.timeout_seconds) as answer:
            content: bytes = answer.read(ANSWER_BYTES_MAX + 1)
        if len(content) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
        return content

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": f"{_JSON}, application/json", "Content-Type": _JSON}
        if self.user_info is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(self.user_info.encode()).decode()}"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, self.key_password)
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects)

    def __str__(self) -> str:
        return f"the registry at {self.url}"


@contextmanager
def about(subject: str, version: Registered) -> Iterator[None]:
    """Names the schema that is refused."""
    try:
        yield
    except RegistryRefused as error:
        which = f"version {version.version}" if version.version else "the given schema"
        raise RegistryRefused(f"subject {subject}, {which}: {error}") from None


def below(path: str, name: str) -> str:
    """The way to a field, for a refusal; `path` is the way to what it is in."""
    return f"{path}.{name}" if path else name


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A login is for the machine that the user named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@lru_cache(REMEMBERED_MAX)
def _version(registry: Registry, subject: str, number: int) -> Registered:
    """A version of a subject never changes."""
    return registry._fetched(subject, number, 0)


def registry_at(url: str, options: Mapping[str, str]) -> Registry:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise RegistryRefused("the URL of the registry has to look like http://HOST:PORT or https://HOST:PORT/PATH")
    if "@" in parts.netloc:
        raise RegistryRefused("the URL of the registry holds a login: give it as options={'basic.auth.user.info': ...}")
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            raise RegistryRefused(f"registry: {unknown_option(name, _OPTIONS)}")
        fields[_OPTIONS[name]] = _number(name, value) if name in ("timeout", "max.retries") else value
    if "user_info" in fields and "token" in fields:
        raise RegistryRefused("registry: basic.auth.user.info and bearer.auth.token are two logins: give one")
    if ("key" in fields) > ("certificate" in fields):
        raise RegistryRefused("registry: ssl.key.location needs ssl.certificate.location")
    return Registry(url.rstrip("/"), **fields)


def _number(name: str, value: str) -> int:
    if not (str(value).isdecimal() and int(value) >= (name == "timeout")):
        raise RegistryRefused(f"registry: option {name}={value!r} is no such number: 10, for example")
    return int(value)


def _said(error: urllib.error.HTTPError) -> str:
    """The registry's own words."""
    try:
        answer = json.loads(error.read(ANSWER_BYTES_MAX))
        return str(answer.get("message") or answer.get("title") or error.reason)
    except (OSError, ValueError, AttributeError):
        return str(error.reason)
