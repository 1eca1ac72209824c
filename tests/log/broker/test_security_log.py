"""The security log has each denied request and each change of rules, once, in lines that no client can forge."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from asking import at
from guarded import STRANGER, TOPIC, GuardedBroker, create_topic, producing_in_a_transaction, rule
from semel.log.broker.events import line
from semel.log.broker.security_log import BYTES_MAX, LINES_MAX, PERIOD_SECONDS, TEXT_CHARACTERS_MAX, SecurityLog
from semel.log.core.access import Operation
from semel.wire.versions import (
    ALTER_CONFIGS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    PRODUCE,
)
from transacting import TransactionalProducer


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Moved:
    """A clock that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_denied_request_is_told_with_who_what_and_whence(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.stranger() as stranger:
        create_topic(stranger, "orders")
    (told,) = lines(path)
    assert told.pop("at").endswith("Z")
    assert told.pop("peer").startswith(f"{STRANGER}:")
    assert told == {
        "event": "access_denied",
        "principal": "User:ANONYMOUS",
        "client": "asker",
        "api": 19,
        "operation": "CREATE",
        "resource": "TOPIC",
        "name": "orders",
    }


def test_a_batch_in_the_transaction_of_another_is_told_with_the_id_that_it_named(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.stranger() as stranger:
        with broker.administrator() as admin:
            admin.create("orders")
            owner = TransactionalProducer(admin)
            assert owner.claim() == 0
            assert owner.add("orders") == [0]
        broker.add(rule(TOPIC, "orders", Operation.WRITE))
        answer = stranger(PRODUCE, 9, **producing_in_a_transaction(bytes(16), owner.identity[0]))
        assert answer.responses[0].partition_responses[0].error_code != 0
    assert [line["name"] for line in lines(path) if line["event"] == "access_denied"] == ["payments"]


def test_what_only_leaves_a_list_shorter_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.stranger() as stranger:
        with broker.administrator() as admin:
            admin.create("orders")
        wish = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
        assert stranger(METADATA, 12, topics=None, **wish).topics == ()
    assert [line["event"] for line in lines(path)] == ["administration"]


def test_a_change_of_rules_is_told_and_one_that_changes_nothing_is_not(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    fields = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:app"}
    creation = {**fields, "host": "*", "operation": 4, "permission_type": 3}
    wanted = {"resource_type_filter": 1, "resource_name_filter": "orders", "pattern_type_filter": 1}
    wanted |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.administrator() as admin:
        for _ in range(2):
            admin(CREATE_ACLS, creations=[creation])
        for _ in range(2):
            admin(DELETE_ACLS, filters=[wanted])
    added, removed = lines(path)
    assert (added["event"], removed["event"]) == ("access_rules_added", "access_rules_removed")
    assert added["principal"] == "User:ANONYMOUS"
    rule = {"permission": "ALLOW", "principal": "User:app", "operation": "WRITE", "resource": "TOPIC"}
    assert added["rules"] == removed["rules"] == [rule | {"name": "orders", "pattern": "LITERAL", "host": "*"}]


def test_a_change_of_a_user_is_told_without_what_proves_the_password(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    key = {"name": "carol", "mechanism": 2}
    upsertion = {**key, "iterations": 4096, "salt": b"some salt", "salted_password": b"secret".ljust(64)}
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.administrator() as admin:
        admin(ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[upsertion])
        admin(ALTER_USER_SCRAM_CREDENTIALS, deletions=[key], upsertions=[])
        admin(ALTER_USER_SCRAM_CREDENTIALS, deletions=[key], upsertions=[])
    told = lines(path)
    assert [(line["event"], line["user"], line["mechanism"], line["password"]) for line in told] == [
        ("users_changed", "carol", "SCRAM-SHA-512", "set"),
        ("users_changed", "carol", "SCRAM-SHA-512", "removed"),
    ]
    assert told[0].keys() - {"user", "mechanism", "password"} == {"at", "event", "peer", "principal", "client", "api"}


def test_what_an_administrator_does_to_topics_and_groups_is_told_and_what_is_refused_or_tried_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "security.log"
    retention = [{"name": "retention.ms", "value": "1000"}]
    topic = {"resource_type": 2, "resource_name": "orders", "configs": retention}
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.administrator() as admin:
        admin.create("orders")
        admin(ALTER_CONFIGS, resources=[topic], validate_only=True)
        for _ in range(2):
            admin(ALTER_CONFIGS, resources=[topic], validate_only=False)
        grown = {"name": "orders", "count": 3, "assignments": None}
        admin(CREATE_PARTITIONS, topics=[grown], timeout_ms=1, validate_only=False)
        admin.produce("orders", at(1))
        cut = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]
        for _ in range(2):
            admin(DELETE_RECORDS, topics=cut, timeout_ms=1)
        committed = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        topics = [{"name": "orders", "partitions": [{**committed, "committed_metadata": None}]}]
        member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        admin(OFFSET_COMMIT, 8, group_id="billing", **member, topics=topics)
        for _ in range(2):
            admin(DELETE_GROUPS, groups_names=["billing"])
            admin(DELETE_TOPICS, 5, topic_names=["orders"], timeout_ms=1)
    told = [{name: line[name] for name in list(line)[6:]} for line in lines(path)]
    assert {line["event"] for line in lines(path)} == {"administration"}
    assert lines(path)[0]["principal"] == "User:ANONYMOUS"
    assert told == [
        {"change": "topic_created", "name": "orders", "partitions": 1},
        {"change": "configs_changed", "name": "orders", "resource": "TOPIC", "configs": {"retention.ms": "1000"}},
        {"change": "partitions_added", "name": "orders", "partitions": 3},
        {"change": "records_deleted", "name": "orders", "partition": 0, "below": 1},
        {"change": "group_deleted", "name": "billing"},
        {"change": "topic_deleted", "name": "orders"},
    ]


def test_the_operators_line_has_the_number_of_rules_and_the_security_log_has_the_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "security.log"
    names = [f"orders-{number}" for number in range(500)]
    rules = {"resource_type": 2, "resource_pattern_type": 3, "principal": "User:app", "host": "*"}
    creations = [{**rules, "resource_name": name, "operation": 4, "permission_type": 3} for name in names]
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.administrator() as admin:
        admin(CREATE_ACLS, creations=creations)
    (told,) = lines(path)
    assert [rule["name"] for rule in told["rules"]] == names
    (said,) = [record.getMessage() for record in caplog.records if "access_rules_added" in record.getMessage()]
    assert said.endswith(" rules=500")


def test_who_sets_the_offsets_of_a_group_that_its_members_have_left_is_told_with_from_where_to_where(
    tmp_path: Path,
) -> None:
    path = tmp_path / "security.log"

    def commit(group: str, offset: int) -> None:
        one = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": None}
        topics = [{"name": "orders", "partitions": [{"partition_index": number, **one} for number in range(12)]}]
        nobody = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        answer = admin(OFFSET_COMMIT, 8, group_id=group, **nobody, topics=topics)
        assert {each.error_code for each in answer.topics[0].partitions} == {0}

    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.administrator() as admin:
        admin.create("orders", partitions=12)
        for offset in (3, 7):
            commit("simple", offset)
        commit("billing", 5)
        subscribed = {"group_id": "billing", "rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
        subscribed |= {"server_assignor": "uniform", "topic_partitions": []}
        for epoch in (0, -1):
            beat = {**subscribed, "member_id": "m", "member_epoch": epoch}
            assert admin(CONSUMER_GROUP_HEARTBEAT, 0, **beat).error_code == 0
        for offset in (9, 9, 2):
            commit("billing", offset)
        forgotten = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
        admin(OFFSET_DELETE, 0, group_id="billing", topics=forgotten)
    there, back, deleted = ({name: line[name] for name in list(line)[6:]} for line in lines(path)[1:])
    assert there.pop("first").startswith("orders:0 from 5 to 9, orders:1 from 5 to 9, ")
    assert back.pop("first").endswith(", orders:9 from 9 to 2")
    assert there == back == {"change": "offsets_set", "name": "billing", "partitions": 12}
    assert deleted == {"change": "offsets_deleted", "name": "billing", "topic": "orders", "partitions": 1}


@pytest.mark.parametrize("name", ['a"}\n{"event":"login', "\u2028\u0085\r\n", "ä\x00\x1b[31m"])
def test_no_name_makes_a_line_of_its_own(tmp_path: Path, name: str) -> None:
    path = tmp_path / "security.log"
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.stranger() as stranger:
        create_topic(stranger, name)
    assert path.read_bytes().count(b"\n") == 1
    assert path.read_text().isascii()
    assert lines(path)[0]["name"] == name


def test_a_flood_is_cut_off_and_counted(tmp_path: Path) -> None:
    clock = Moved()
    log = SecurityLog(tmp_path / "log", time_of_day=lambda: 0.0, clock=clock)
    for number in range(LINES_MAX + 5):
        log.write("access_denied", {"number": number})
    assert len(lines(tmp_path / "log")) == LINES_MAX
    clock.now = PERIOD_SECONDS
    log.write("access_denied", {})
    log.write("access_denied", {})
    *_, first, second = lines(tmp_path / "log")
    assert first == {"at": "1970-01-01T00:00:00.000Z", "event": "access_denied", "left_out": 5}
    assert "left_out" not in second


def test_a_flood_of_refusals_keeps_no_change_of_an_administrator_out(tmp_path: Path) -> None:
    log = SecurityLog(tmp_path / "log", clock=Moved())
    for _ in range(LINES_MAX + 1):
        log.write("login_refused", {})
    log.write("users_changed", {"user": "mallory"})
    assert lines(tmp_path / "log")[-1]["user"] == "mallory"


def test_long_names_are_cut_and_take_no_more_of_the_disk_than_short_ones(tmp_path: Path) -> None:
    log = SecurityLog(tmp_path / "log", clock=Moved())
    name = "\x00" * 30_000
    log.write("login_refused", {"user": name, "reason": "x"})
    (told,) = lines(tmp_path / "log")
    assert told["user"] == name[:TEXT_CHARACTERS_MAX] + "... (30000 characters)"
    assert len(line("login_refused", {"user": name})) < 10 * TEXT_CHARACTERS_MAX
    for _ in range(LINES_MAX):
        log.write("login_refused", {"user": name})
    assert (tmp_path / "log").stat().st_size <= BYTES_MAX


def test_a_file_that_was_rotated_is_made_again_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = SecurityLog(path)
    log.write("access_denied", {"number": 1})
    os.rename(path, tmp_path / "log.1")
    log.write("access_denied", {"number": 2})
    log.close()
    log.write("access_denied", {"number": 3})
    assert [line["number"] for line in lines(tmp_path / "log.1")] == [1]
    assert [line["number"] for line in lines(path)] == [2, 3]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_disk_that_refuses_a_line_keeps_no_request_from_being_served(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    log = SecurityLog(directory / "log")
    with GuardedBroker(security_log=log) as broker, broker.stranger() as stranger:
        (directory / "log").unlink()
        directory.rmdir()
        create_topic(stranger, "orders")
        assert isinstance(log.failure, FileNotFoundError)
        broker.add(rule(TOPIC, "orders", Operation.CREATE))
        assert create_topic(stranger, "orders") == 0
