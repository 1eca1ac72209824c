"""A schema registry, as far as the console needs it: it finds a schema by its number, and decodes values with it.

A value that was written with a registry begins with a zero byte and the number of its schema in four bytes. The console
asks the registry once for each schema; an error is shown beside the bytes, and never ends a page. The console asks only
at the HTTP or HTTPS address that it was started with.
"""

import http.client
import json
import math
import struct
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from semel.ui.console.avro import Names, NotAvro, Schema, beginning, decode
from semel.wire.basic import BasicLogin

# How many schemas are remembered, which is more than a page shows.
SCHEMAS_MAX: Final = 500
SCHEMA_BYTES_MAX: Final = 1024 * 1024
ANSWER_SECONDS_MAX: Final = 3.0
# Larger values are not decoded, and of a decoded value a page shows so many characters: a page may have a hundred.
VALUE_BYTES_MAX: Final = 1024 * 1024
TEXT_MAX: Final = 20_000
# After a failed request, a schema is not requested again for this time, and after one that got no answer, none is:
# otherwise a page would wait for each record.
AGAIN_SECONDS: Final = 10.0
REFERENCES_MAX: Final = 20
_HEAD: Final = struct.Struct(">bI")


class _NoAnswer(Exception):
    """The registry did not give the schema; the message says why."""


class _Away(_NoAnswer):
    """The registry did not answer at all."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow no redirect, so that only the given address is asked."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


class Registry:
    """One registry. Several threads may ask it."""

    def __init__(self, url: str) -> None:
        """ValueError if `url` is no address of a registry."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a registry, such as http://127.0.0.1:8081")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            self._headers["Authorization"] = BasicLogin(unquote(parts.username), unquote(parts.password or "")).header
        place = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._known: dict[int, tuple[str, Schema, Names]] = {}
        self._failed: dict[int, tuple[float, str]] = {}
        # The last time that the registry did not answer at all.
        self._away = (-math.inf, "")
        self._lock = threading.Lock()

    def decoded(self, data: bytes | None) -> dict[str, Any] | None:
        """The decoded value, or why it cannot be decoded; None for a value that was not written with a registry."""
        if data is None or len(data) < _HEAD.size or data[0] != 0:
            return None
        _, number = _HEAD.unpack_from(data)
        try:
            with self._lock:
                kind, schema, names = self._schema(number)
        except _NoAnswer as error:
            return {"schema": f"schema {number}", "trouble": str(error)}
        told = {"schema": f"{kind}, schema {number}"}
        if len(data) > VALUE_BYTES_MAX:
            return {**told, "trouble": f"the console decodes no value of more than {VALUE_BYTES_MAX} bytes"}
        body = data[_HEAD.size :]
        try:
            if kind == "JSON":
                return {**told, **_beginning(json.loads(body))}
            if kind == "AVRO":
                return {**told, **_beginning(decode(schema, names, body))}
            return {**told, "trouble": f"the console does not read {kind}"}
        except (NotAvro, ValueError, RecursionError) as error:
            return {**told, "trouble": f"it is not what its schema says: {error}"}

    def _schema(self, number: int) -> tuple[str, Schema, Names]:
        if number in self._known:
            return self._known[number]
        for failed_at, why in (self._away, self._failed.get(number, (-math.inf, ""))):
            if time.monotonic() - failed_at < AGAIN_SECONDS:
                raise _NoAnswer(why)
        names = Names()
        try:
            answer = self._get(f"/schemas/ids/{number}")
            kind = str(answer.get("schemaType", "AVRO"))
            if kind == "AVRO":
                self._take_references(answer, names, 0)
                schema = names.add(str(answer["schema"]))
            else:
                schema = None
        except _Away as away:
            self._away = (time.monotonic(), str(away))
            raise
        except (_NoAnswer, NotAvro, KeyError, TypeError, ValueError) as error:
            self._remember(self._failed, number, (time.monotonic(), str(error)))
            raise _NoAnswer(str(error)) from None
        self._remember(self._known, number, (kind, schema, names))
        return kind, schema, names

    def _take_references(self, answer: dict[str, Any], names: Names, depth: int) -> None:
        references = answer.get("references") or ()
        if depth > REFERENCES_MAX or len(references) > REFERENCES_MAX:
            raise _NoAnswer("the schema refers to too many others")
        for one in references:
            place = f"/subjects/{quote(str(one['subject']), safe='')}/versions/{int(one['version'])}"
            other = self._get(place)
            self._take_references(other, names, depth + 1)
            names.add(str(other["schema"]))

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(self._base + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS_MAX) as answer:
                found = json.loads(answer.read(SCHEMA_BYTES_MAX))
        except urllib.error.HTTPError as error:
            raise _NoAnswer(f"the registry answers {error.code}") from None
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise _Away(f"the registry does not answer: {getattr(reason, 'strerror', None) or reason}") from None
        except (http.client.HTTPException, ValueError, RecursionError):
            raise _NoAnswer("the registry answers with something else than a schema") from None
        if not isinstance(found, dict):
            raise _NoAnswer("the registry answers no schema")
        return found

    @staticmethod
    def _remember(known: dict[int, Any], number: int, value: Any) -> None:
        known[number] = value
        while len(known) > SCHEMAS_MAX:
            del known[next(iter(known))]


def _beginning(value: Any) -> dict[str, Any]:
    text, left_out = beginning(value, TEXT_MAX)
    return {"text": text, "left_out": left_out}
