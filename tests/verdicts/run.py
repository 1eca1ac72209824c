"""`python -m verdicts.run`: the same requests to semel and to Apache Kafka with its StandardAuthorizer, call by call.

Each of five principals makes every call in every round of rules. What is compared is each error code, where it stands,
each name that a list shows, and the bits of the authorized operations. A difference that is not in `EXPECTED` fails the
run, and so does an entry of `EXPECTED` that no call needs any more.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

from bench.peers.kafka import Kafka
from bench.peers.process import SkipReason, port_is_open

from asking import ConnectionEnded
from eventually import eventually
from guarded import creation
from semel.log.core.entries import AccessRule
from semel.wire import versions as v
from semel.wire.errors import ErrorCode
from semel.wire.message import Struct
from verdicts.calls import Call, calls
from verdicts.principals import ADMINISTRATOR, HOSTS, PRINCIPALS, ROUNDS, BrokerByAddress, Client

# Calls that are answered otherwise, where they are allowed, and why.
EXPECTED: Final = {
    "Metadata, creating": "Kafka answers before the topic exists, and has the client ask again; semel answers with it",
}
# A name that an answer shows, where it stands for a part of what was asked or listed.
_NAMES: Final = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key", "groupid")
_TOPIC_IDS: Final = ("topic_id",)
# What differs between the two brokers for other reasons than rights.
_LEFT_OUT: Final = (
    *("api_keys", "supported_features", "finalized_features", "brokers", "listeners", "configs"),
    "active_producers",
)
# What a cluster has of its own, and is no answer to this program.
_INTERNAL: Final = "__"

Shown = dict[str, object]


def shown(answer: object, names_of_ids: dict[bytes, str], path: str = "") -> Iterator[tuple[str, object]]:
    """Error codes and operations, by where they stand in an answer; whatever has a name goes by it."""
    if isinstance(answer, tuple):
        for place, item in enumerate(answer):
            label = _label(item, names_of_ids)
            if label is not None and label.startswith(_INTERNAL):
                continue
            yield f"{path}[{place if label is None else label}]", "is shown"
            yield from shown(item, names_of_ids, f"{path}[{place if label is None else label}]")
        return
    for name in answer.FIELDS if isinstance(answer, Struct) else ():
        value = getattr(answer, name)
        if name.endswith("error_code"):
            yield f"{path}.{name}", ErrorCode(int(value)).name
        elif name.endswith("authorized_operations"):
            yield f"{path}.{name}", hex(int(value))
        elif name not in _LEFT_OUT:
            yield from shown(value, names_of_ids, f"{path}.{name}")


def _label(item: object, names_of_ids: dict[bytes, str]) -> str | None:
    for name in _NAMES:
        value = getattr(item, name, None)
        if isinstance(value, str) and value:
            return value
    for name in _TOPIC_IDS:
        value = getattr(item, name, None)
        if value is not None:
            return names_of_ids.get(value, "an unknown id")
    return None


class Side:
    """One of the two brokers, with a connection for each principal."""

    def __init__(self, name: str, bootstrap: str, *, logs_in: bool) -> None:
        self.name = name
        self._bootstrap, self._logs_in = bootstrap, logs_in
        self._clients: dict[str, Client] = {}
        self.admin = self._client(ADMINISTRATOR)

    def _client(self, name: str) -> Client:
        if name not in self._clients:
            self._clients[name] = Client(self._bootstrap, name, logs_in=self._logs_in)
        return self._clients[name]

    def ids(self) -> dict[str, bytes]:
        """The ids of the topics, by name."""
        wish = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": False}
        answer = self.admin(v.METADATA, 12, topics=None, **wish)
        return {topic.name: topic.topic_id for topic in answer.topics if not topic.error_code}

    def prepare(self) -> None:
        for name in ("orders", "payments", "doomed"):
            self.admin.create(name)
        until(lambda: {"orders", "payments", "doomed"} <= set(self.ids()))
        # Apache Kafka makes the topics of its coordinators when somebody looks for one.
        for key_type in (0, 1):
            until(
                lambda kind=key_type: not self.admin(v.FIND_COORDINATOR, 3, key="readers", key_type=kind).error_code  # type: ignore[misc]
            )
        until(lambda: self._commit() == 0)
        claim = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        until(lambda: self.admin(v.INIT_PRODUCER_ID, 4, transactional_id="till", **claim).error_code == 0)
        until(lambda: self.admin(v.INIT_PRODUCER_ID, 4, transactional_id="other", **claim).error_code == 0)

    def _commit(self) -> int:
        """Both groups have an offset of `orders`."""
        codes = []
        for group in ("readers", "others"):
            committed = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
            topics = [{"name": "orders", "partitions": [{**committed, "committed_leader_epoch": -1}]}]
            member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
            answer = self.admin(v.OFFSET_COMMIT, 8, group_id=group, **member, topics=topics)
            codes.append(int(answer.topics[0].partitions[0].error_code))
        return max(codes, key=abs)

    def obey(self, rules: list[AccessRule]) -> None:
        """These rules and no others, and all of them in force."""
        everything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
        everything |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        self.admin(v.DELETE_ACLS, 2, filters=[everything])
        results = self.admin(v.CREATE_ACLS, 2, creations=map(creation, rules)).results
        assert not any(result.error_code for result in results), results

        def count() -> int:
            return sum(len(resource.acls) for resource in self.admin(v.DESCRIBE_ACLS, 2, **everything).resources)

        until(lambda: count() == len(set(rules)))

    def mend(self) -> None:
        """Put back what a call may have taken away, or made."""
        names = set(self.ids())
        if "made" in names:
            self.admin(v.DELETE_TOPICS, 5, topic_names=["made"], timeout_ms=9000)
            until(lambda: "made" not in self.ids())
        if "doomed" not in names:
            self.admin.create("doomed")
            until(lambda: "doomed" in self.ids())

    def answer(self, name: str, call: Call) -> Shown:
        try:
            answer = self._client(name)(call.api_key, call.version, **call.fields)
        except ConnectionEnded:
            self._clients.pop(name).close()
            return {"": "the connection was closed"}
        return dict(shown(answer, {topic_id: topic for topic, topic_id in self.ids().items()}))

    def ask_all(self, name: str) -> dict[str, Shown]:
        """What a principal is answered, by the names of the calls."""
        answers = {}
        for place in range(len(calls({"orders": b"", "payments": b"", "doomed": b""}))):
            self.mend()
            # The ids may have changed.
            ids = self.ids()
            call = calls(ids)[place]
            answers[call.name] = answer = self.answer(name, call)
            if call.api_key == v.DELETE_TOPICS and "NONE" in answer.values():
                # Apache Kafka's controller answers before its broker knows that, and `mend` must not see the topic.
                until(lambda deleted=ids["doomed"]: self.ids().get("doomed") != deleted)  # type: ignore[misc]
        return answers

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def was_allowed(answer: Shown) -> bool:
    return not any(str(value).endswith("AUTHORIZATION_FAILED") for value in answer.values())


def until(holds: Callable[[], bool]) -> None:
    assert eventually(holds), "a broker did not get there"


class GuardedKafka(Kafka):
    """Apache Kafka whose clients log in by PLAIN, with the password that is their name."""

    def __init__(self) -> None:
        users = " ".join(f'user_{name}="{name}"' for name in HOSTS)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        admin = f'username="{ADMINISTRATOR}" password="{ADMINISTRATOR}"'
        self._more = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {admin} {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Its controller knows the broker by no name.
            "super.users": f"User:{ADMINISTRATOR};User:ANONYMOUS",
            "group.initial.rebalance.delay.ms": "0",
        }
        super().__init__()

    def prepare(self) -> None:
        self._properties |= {
            **self._more,
            "listeners": f"SASL_PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"SASL_PLAINTEXT://{self.bootstrap}",
        }
        super().prepare()

    def is_ready(self) -> bool:
        if not port_is_open(self.port):
            return False
        try:
            with Client(self.bootstrap, ADMINISTRATOR, logs_in=True) as client:
                wish: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
                return bool(client(v.METADATA, 12, **wish, include_topic_authorized_operations=False).brokers)
        except (AssertionError, ConnectionEnded, OSError):
            return False


def main() -> int:
    kafka = GuardedKafka()
    try:
        kafka.install()
    except SkipReason as reason:
        print(f"skipped: {reason}")
        return 0
    with kafka, BrokerByAddress() as broker, ExitStack() as stack:
        ours, theirs = Side("semel", broker.bootstrap, logs_in=False), Side("Kafka", kafka.bootstrap, logs_in=True)
        for side in (ours, theirs):
            stack.callback(side.close)
            side.prepare()
        count, denied, unexpected = 0, 0, 0
        differing: Counter[str] = Counter()
        for round_name, rules in ROUNDS.items():
            for side in (ours, theirs):
                side.obey(rules)
            for name in PRINCIPALS:
                got, expected = ours.ask_all(name), theirs.ask_all(name)
                count += len(got)
                denied += sum(not was_allowed(answer) for answer in expected.values())
                for call, answer in got.items():
                    if answer != expected[call]:
                        differing[call] += 1
                        if call in EXPECTED and was_allowed(answer) == was_allowed(expected[call]):
                            continue
                        unexpected += 1
                        print(f"{round_name}: {name}: {call}")
                        for where in sorted({*answer, *expected[call]}):
                            if answer.get(where) != expected[call].get(where):
                                print(f"    {where}: semel {answer.get(where)}, Kafka {expected[call].get(where)}")
        for call, reason in EXPECTED.items():
            print(f"{call}: {differing[call]} times otherwise: {reason}")
        unneeded = [call for call in EXPECTED if not differing[call]]
        print(f"{count} calls, {denied} of them denied in full or in part")
        print(f"{differing.total()} answered otherwise, {unexpected} of them not as expected")
    return 1 if unexpected or unneeded else 0


if __name__ == "__main__":
    sys.exit(main())
