"""A cluster of several brokers, or of older ones, or of ones that want TLS or a login, all before one broker of semel.

What is asked goes to semel and its answers come back, but for what the cluster is about: who leads which partition,
what the brokers speak, and whom they let in.
"""

import base64
import hashlib
import hmac
import socket
import socketserver
import ssl
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import fetch, produce
from semel.wire.errors import ErrorCode
from semel.wire.frames import SIZE_BYTES, RequestHeader, parse_request_header, parse_response_header
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    VersionRange,
)

CERTIFICATES = Path(__file__).parent / "certificates"
SALT = b"salt"
ITERATIONS = 4096

# What brokers of these releases announce.
KAFKA_2_0 = {FETCH: VersionRange(0, 8), LIST_OFFSETS: VersionRange(0, 3), METADATA: VersionRange(0, 6)}
KAFKA_2_8 = {
    FETCH: VersionRange(0, 12),
    LIST_OFFSETS: VersionRange(0, 6),
    METADATA: VersionRange(0, 11),
    PRODUCE: VersionRange(0, 9),
    FIND_COORDINATOR: VersionRange(0, 3),
    INIT_PRODUCER_ID: VersionRange(0, 4),
    ADD_PARTITIONS_TO_TXN: VersionRange(0, 3),
    END_TXN: VersionRange(0, 3),
}
KAFKA_4_0 = {
    FETCH: VersionRange(4, 17),
    LIST_OFFSETS: VersionRange(1, 10),
    METADATA: VersionRange(0, 13),
    PRODUCE: VersionRange(0, 12),
    FIND_COORDINATOR: VersionRange(0, 6),
    INIT_PRODUCER_ID: VersionRange(0, 5),
    ADD_PARTITIONS_TO_TXN: VersionRange(0, 5),
    END_TXN: VersionRange(0, 5),
}

_OF_TRANSACTIONS = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN)


class RelayedCluster:
    """Use it in a `with` block. Brokers have the numbers 0 to `brokers` - 1; `leader` leads every partition."""

    def __init__(
        self,
        upstream: str,
        *,
        brokers: int = 1,
        versions: dict[int, VersionRange] | None = None,
        tls: bool = False,
        mechanism: str | None = None,
        users: dict[str, str] | None = None,
    ) -> None:
        self.become(upstream)
        self.versions = {**{key: api.versions for key, api in APIS.items()}, **(versions or {})}
        self.leader = 0
        self.mechanism = mechanism
        self.users = users or {}
        # The next answers to Fetch are these errors.
        self.fetch_errors: list[ErrorCode] = []
        # The next answers to Produce are these errors, whether semel has stored what they are about or not.
        self.produce_errors: list[ErrorCode] = []
        self.stores_what_fails = False
        # The next answers about a transaction are these errors.
        self.coordinator_errors: list[ErrorCode] = []
        # What the brokers say of every topic, and of whatever somebody asks a coordinator for.
        self.topics_error: ErrorCode | None = None
        self.find_error: ErrorCode | None = None
        # What the brokers say who are asked for configurations.
        self.configs_error: ErrorCode | None = None
        # Where every log ends at the latest, in the words of these brokers: they are cut off from the true leader.
        self.shown_end: int | None = None
        # So many requests to each API have their effect, and their answers are lost.
        self.answers_to_lose: Counter[int] = Counter()
        self.asked: Counter[tuple[int, int]] = Counter()
        self._tls = _server_tls() if tls else None
        self._servers = [_Server(self, number) for number in range(brokers)]

    def __enter__(self) -> "RelayedCluster":
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def become(self, upstream: str) -> None:
        """Another semel from the next request on, over the same connections: as when a partition's log is exchanged."""
        host, _, port = upstream.rpartition(":")
        self.upstream = host, int(port)

    def times_asked(self, api_key: int) -> int:
        return sum(times for (asked_for, _), times in self.asked.items() if asked_for == api_key)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def ports(self) -> list[int]:
        return [server.server_address[1] for server in self._servers]

    def secured(self, connected: socket.socket) -> socket.socket:
        return connected if self._tls is None else self._tls.wrap_socket(connected, server_side=True)

    def answer(self, number: int, header: RequestHeader, frame: bytes, ask_upstream: "Upstream") -> bytes:
        """What this broker answers."""
        api_key, version, correlation_id, _, body = header
        self.asked[api_key, version] += 1
        if api_key == API_VERSIONS:
            keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self._announced()]
            return messages.encode_response(API_VERSIONS, version, correlation_id, {"api_keys": keys})
        announced = self.versions[api_key]
        assert announced.min <= version <= announced.max, f"API {api_key} is asked for in version {version}"
        if self.answers_to_lose[api_key]:
            self.answers_to_lose[api_key] -= 1
            ask_upstream(frame)
            raise ConnectionError("the answer is lost")
        if api_key == METADATA:
            return self._metadata(header, ask_upstream(frame))
        if api_key == FETCH and (self.fetch_errors or number != self.leader):
            code = self.fetch_errors.pop(0) if self.fetch_errors else ErrorCode.NOT_LEADER_OR_FOLLOWER
            (topic,) = fetch.decode_request(frame[body:], version).topics
            refused = fetch.FetchPartitionAnswer(topic.partitions[0].partition, code, -1)
            topics = [(topic.name, topic.topic_id, [refused])]
            return b"".join(fetch.encode_response(version, correlation_id, 0, 0, topics))
        if api_key == FIND_COORDINATOR:
            # It is the broker behind the leader, so that more than one is talked to.
            found = {"error_code": self.find_error or 0, "node_id": 0, "host": "127.0.0.1", "port": self.ports[-1]}
            return messages.encode_response(FIND_COORDINATOR, version, correlation_id, found)
        if api_key in _OF_TRANSACTIONS:
            return self._of_transaction(header, frame, ask_upstream)
        if api_key == PRODUCE and (self.produce_errors or number != self.leader):
            return self._not_produced(header, frame, ask_upstream)
        if api_key == DESCRIBE_CONFIGS and self.configs_error is not None:
            return self._no_configs(header, frame[body:])
        if api_key == LIST_OFFSETS and number != self.leader:
            return self._not_leader_of_offsets(header, frame[body:])
        if api_key == LIST_OFFSETS and self.shown_end is not None:
            return self._old_offsets(header, ask_upstream(frame), self.shown_end)
        return ask_upstream(frame)

    def _of_transaction(self, header: RequestHeader, frame: bytes, ask_upstream: "Upstream") -> bytes:
        if self.coordinator_errors:
            return self._coordinator_error(header, frame[header.body :])
        return ask_upstream(frame)

    def _coordinator_error(self, header: RequestHeader, body: bytes) -> bytes:
        values: dict[str, object] = {"error_code": self.coordinator_errors.pop(0)}
        if header.api_key == INIT_PRODUCER_ID:
            values |= {"producer_id": -1, "producer_epoch": -1}
        if header.api_key == ADD_PARTITIONS_TO_TXN:
            asked = messages.decode_request(ADD_PARTITIONS_TO_TXN, header.api_version, body)
            code = values.pop("error_code")
            values["results_by_topic_v3_and_below"] = [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": partition, "partition_error_code": code} for partition in topic.partitions
                    ],
                }
                for topic in asked.v3_and_below_topics
            ]
        return messages.encode_response(header.api_key, header.api_version, header.correlation_id, values)

    def _not_produced(self, header: RequestHeader, frame: bytes, ask_upstream: "Upstream") -> bytes:
        code = self.produce_errors.pop(0) if self.produce_errors else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.stores_what_fails:
            ask_upstream(frame)
        asked = produce.decode_request(frame[header.body :], header.api_version)
        topics = [
            (
                topic.name,
                None,
                [produce.ProducePartitionAnswer(partition, code, -1) for partition, _ in topic.partitions],
            )
            for topic in asked.topics
        ]
        return produce.encode_response(header.api_version, header.correlation_id, topics)

    def _announced(self) -> list[tuple[int, VersionRange]]:
        sasl = {SASL_HANDSHAKE: VersionRange(0, 1), SASL_AUTHENTICATE: VersionRange(0, 2)} if self.mechanism else {}
        return list({**self.versions, **sasl}.items())

    def _metadata(self, header: RequestHeader, answer: bytes) -> bytes:
        """semel's own answer, with the brokers of this cluster in the place of the one there is."""
        _, body = parse_response_header(METADATA, header.api_version, answer[SIZE_BYTES:])
        found = messages.decode_response(METADATA, header.api_version, answer[SIZE_BYTES + body :])
        described = {
            "brokers": [
                {"node_id": number, "host": "127.0.0.1", "port": port, "rack": None}
                for number, port in enumerate(self.ports)
            ],
            "cluster_id": found.cluster_id,
            "controller_id": 0,
            "topics": [self._topic(topic) for topic in found.topics],
            "cluster_authorized_operations": -(2**31),
        }
        return messages.encode_response(METADATA, header.api_version, header.correlation_id, described)

    def _topic(self, topic: Any) -> dict[str, object]:
        return {
            "error_code": self.topics_error or topic.error_code,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": False,
            "topic_authorized_operations": -(2**31),
            "partitions": [
                {
                    "partition_index": partition.partition_index,
                    "leader_id": self.leader,
                    "leader_epoch": 0,
                    "replica_nodes": [self.leader],
                    "isr_nodes": [self.leader],
                    "offline_replicas": [],
                }
                for partition in topic.partitions
            ],
        }

    def _no_configs(self, header: RequestHeader, body: bytes) -> bytes:
        asked = messages.decode_request(DESCRIBE_CONFIGS, header.api_version, body)
        results = [
            {
                "error_code": self.configs_error,
                "error_message": None,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
                "configs": [],
            }
            for one in asked.resources
        ]
        return messages.encode_response(
            DESCRIBE_CONFIGS, header.api_version, header.correlation_id, {"results": results}
        )

    def _old_offsets(self, header: RequestHeader, answer: bytes, end: int) -> bytes:
        _, body = parse_response_header(LIST_OFFSETS, header.api_version, answer[SIZE_BYTES:])
        found = messages.decode_response(LIST_OFFSETS, header.api_version, answer[SIZE_BYTES + body :])
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": one.error_code,
                        "timestamp": -1,
                        "offset": min(one.offset, end),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in found.topics
        ]
        return messages.encode_response(LIST_OFFSETS, header.api_version, header.correlation_id, {"topics": topics})

    def _not_leader_of_offsets(self, header: RequestHeader, body: bytes) -> bytes:
        asked = messages.decode_request(LIST_OFFSETS, header.api_version, body)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": code, "timestamp": -1, "offset": -1}
                    for one in topic.partitions
                ],
            }
            for topic in asked.topics
        ]
        return messages.encode_response(LIST_OFFSETS, header.api_version, header.correlation_id, {"topics": topics})


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, cluster: RelayedCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        cluster = self.server.cluster
        upstream = Upstream(cluster)
        try:
            connected = cluster.secured(self.request)
            login = _Login(cluster) if cluster.mechanism else None
            while frame := _read_frame(connected):
                header = parse_request_header(frame)
                if header.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
                    assert login is not None
                    connected.sendall(login.answer(header, frame[header.body :]))
                    continue
                if login is not None and not login.is_done and header.api_key != API_VERSIONS:
                    return
                connected.sendall(cluster.answer(self.server.number, header, frame, upstream))
        except OSError:
            return
        finally:
            upstream.close()


class Upstream:
    """semel, asked in the name of one client."""

    def __init__(self, cluster: RelayedCluster) -> None:
        self._cluster = cluster
        self._address = cluster.upstream
        self._socket = socket.create_connection(self._address)

    def __call__(self, frame: bytes) -> bytes:
        if self._address != self._cluster.upstream:
            self._socket.close()
            self._address = self._cluster.upstream
            self._socket = socket.create_connection(self._address)
        self._socket.sendall(len(frame).to_bytes(4) + frame)
        answer = _read_frame(self._socket)
        return len(answer).to_bytes(4) + answer

    def close(self) -> None:
        self._socket.close()


class _Login:
    """The broker's side of a login: PLAIN, or SCRAM as RFC 5802 has it."""

    def __init__(self, cluster: RelayedCluster) -> None:
        self._cluster = cluster
        self._first: tuple[str, str] | None = None
        self.is_done = False

    def answer(self, header: RequestHeader, body: bytes) -> bytes:
        request = messages.decode_request(header.api_key, header.api_version, body)
        if header.api_key == SASL_HANDSHAKE:
            is_known = request.mechanism == self._cluster.mechanism
            values: dict[str, object] = {
                "error_code": 0 if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                "mechanisms": [self._cluster.mechanism],
            }
        else:
            token = self._token(request.auth_bytes)
            code = ErrorCode.SASL_AUTHENTICATION_FAILED if token is None else 0
            message = "Authentication failed: Invalid credentials" if token is None else None
            values = {
                "error_code": code,
                "error_message": message,
                "auth_bytes": token or b"",
                "session_lifetime_ms": 0,
            }
        return messages.encode_response(header.api_key, header.api_version, header.correlation_id, values)

    def _token(self, received: bytes) -> bytes | None:
        if self._cluster.mechanism == "PLAIN":
            _, user, password = received.decode().split("\0")
            self.is_done = self._cluster.users.get(user) == password
            return b"" if self.is_done else None
        if self._first is None:
            bare = received.decode().removeprefix("n,,")
            nonce = bare.split("r=")[1] + "broker"
            self._first = bare, f"r={nonce},s={base64.b64encode(SALT).decode()},i={ITERATIONS}"
            return self._first[1].encode()
        return self._last(received.decode())

    def _last(self, received: str) -> bytes | None:
        assert self._first is not None
        assert self._cluster.mechanism is not None
        digest = self._cluster.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        bare, challenge = self._first
        without_proof, _, proof = received.partition(",p=")
        user = bare.split(",")[0][2:].replace("=2C", ",").replace("=3D", "=")
        password = self._cluster.users.get(user, "").encode()
        salted = hashlib.pbkdf2_hmac(digest, password, SALT, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", digest)
        spoken = f"{bare},{challenge},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), spoken, digest)
        self.is_done = base64.b64decode(proof) == bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", digest)
        return b"v=" + base64.b64encode(hmac.digest(server_key, spoken, digest)) if self.is_done else None


def _read_frame(connected: socket.socket) -> bytes:
    size = int.from_bytes(_read(connected, SIZE_BYTES))
    return _read(connected, size)


def _read(connected: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connected.recv(size - len(received))
        if not piece:
            return b""
        received += piece
    return received


def _server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    return context
