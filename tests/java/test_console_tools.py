"""Kafka's own console tools work on the broker as on Kafka: topics, groups, transactions, offsets,
records, access rules, users, quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from properties import java_login, java_tls, write_properties
from secured import PASSWORD, SecuredBroker
from semel.log.broker.certificates import TlsSettings
from semel.log.security.listeners import SecurityProtocol
from semel.testing.certificates import Authority

Run = Callable[..., str]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

Tool = Callable[..., str]


@pytest.fixture
def tool(run_java: Run, bootstrap: str) -> Tool:
    """Runs a tool against the broker."""

    def run(name: str, *arguments: str, input: str = "") -> str:
        return run_java(name, "--bootstrap-server", bootstrap, *arguments, input=input)

    return run


def test_topics_are_made_described_changed_and_deleted(tool: Tool, topic: str) -> None:
    assert f"Created topic {topic}." in tool(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    described = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert "TopicId: " in described
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tool(TOPICS, "--describe", "--topic", topic)
    assert topic in tool(TOPICS, "--list").splitlines()
    tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in tool(TOPICS, "--list").splitlines()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_records_and_is_described_reset_and_deleted(tool: Tool, topic: str, protocol: str) -> None:
    tool(TOPICS, "--create", "--topic", topic)
    tool(PRODUCER, "--topic", topic, input="one\ntwo\nthree\n")
    assert tool(OFFSETS, "--topic", topic) == f"{topic}:0:3\n"
    options = ["--from-beginning", "--group", topic, "--max-messages", "2", "--isolation-level", "read_committed"]
    options += ["--command-property", f"group.protocol={protocol}", "--timeout-ms", "30000"]
    assert tool(CONSUMER, "--topic", topic, *options) == "one\ntwo\n"
    assert topic in tool(GROUPS, "--list").splitlines()
    (described,) = [line.split() for line in tool(GROUPS, "--describe", "--group", topic).splitlines() if topic in line]
    assert described[:3] == [topic, topic, "0"]
    assert described[-6:-3] == ["2", "3", "1"]
    assert "Empty" in tool(GROUPS, "--describe", "--group", topic, "--state")
    tool(GROUPS, "--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    options[options.index("2")] = "3"
    assert tool(CONSUMER, "--topic", topic, *options) == "one\ntwo\nthree\n"
    tool(GROUPS, "--delete", "--group", topic)
    assert topic not in tool(GROUPS, "--list").splitlines()


def test_a_share_group_reads_records_and_is_described_reset_and_deleted(tool: Tool, topic: str) -> None:
    tool(TOPICS, "--create", "--topic", topic)
    tool(PRODUCER, "--topic", topic, input="one\ntwo\nthree\n")
    entity = ["--entity-type", "groups", "--entity-name", topic]
    tool(CONFIGS, *entity, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    read = tool(SHARE_CONSUMER, "--topic", topic, "--group", topic, "--max-messages", "2", "--timeout-ms", "30000")
    assert read == "one\ntwo\n"
    assert topic in tool(SHARE_GROUPS, "--list").split()
    assert described_start(tool(SHARE_GROUPS, "--describe", "--group", topic)) == "2"
    reset = ["--reset-offsets", "--to-earliest", "--all-topics", "--execute", "--group", topic]
    tool(SHARE_GROUPS, *reset)
    assert described_start(tool(SHARE_GROUPS, "--describe", "--group", topic)) == "0"
    tool(SHARE_GROUPS, "--delete-offsets", "--topic", topic, "--group", topic)
    assert "successful" in tool(SHARE_GROUPS, "--delete", "--group", topic)


def described_start(described: str) -> str:
    """The start of the one partition in the table of a group: GROUP, TOPIC, PARTITION, START-OFFSET, LAG."""
    (row,) = [line.split() for line in described.splitlines() if line.split()[2:3] == ["0"]]
    return row[3]


def test_transactions_are_listed_and_described(tool: Tool, run_java: Run, bootstrap: str, topic: str) -> None:
    run_java("semel.Transactions", bootstrap, topic)
    (listed,) = [line.split() for line in tool(TRANSACTIONS, "list").splitlines() if line.startswith(f"{topic} ")]
    assert listed[-1] == "CompleteCommit"
    assert "CompleteCommit" in tool(TRANSACTIONS, "describe", "--transactional-id", topic)
    producers = tool(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0").splitlines()
    assert producers[0].split()[0] == "ProducerId"
    assert len(producers) > 1
    assert tool(TRANSACTIONS, "find-hanging", "--broker-id", "1").splitlines()[1:] == []


@pytest.fixture
def administer(run_java_on_semel: Run, tmp_path: Path) -> Iterator[Tool]:
    """Runs a tool, as a user who logs in over TLS, against a broker where everybody has to."""
    authority = Authority(tmp_path / "certificates")
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=TlsSettings(*authority.issue("broker", "localhost"))) as broker:
        broker.add_user("alice", PASSWORD)
        login = {**java_tls(authority), **java_login("SCRAM-SHA-512", "alice", PASSWORD, SecurityProtocol.SASL_SSL)}
        settings = write_properties(tmp_path / "alice.properties", login)

        def run(name: str, *arguments: str) -> str:
            return run_java_on_semel(
                name, "--bootstrap-server", broker.bootstrap, "--command-config", settings, *arguments
            )

        yield run


def rules_in(listed: str) -> set[str]:
    """One line for each rule: the name it is about, and the rule."""
    rules, name = set(), ""
    for line in listed.splitlines():
        if line.startswith("Current ACLs for resource"):
            name = line.partition("name=")[2].partition(",")[0]
        elif line.startswith("\t"):
            rules.add(f"{name} {line.strip()}")
    return rules


def test_access_rules_are_added_listed_and_removed(administer: Tool) -> None:
    app = ["--allow-principal", "User:app", "--topic", "orders"]
    administer(ACLS, "--add", *app, "--consumer", "--group", "readers")
    administer(ACLS, "--add", *app, "--operation", "Write")
    everybody = ["--deny-principal", "User:*", "--deny-host", "10.0.0.7"]
    administer(ACLS, "--add", *everybody, "--topic", "pay", "--resource-pattern-type", "prefixed")
    on_orders = {
        f"orders (principal=User:app, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("READ", "DESCRIBE", "WRITE")
    }
    others = {
        "readers (principal=User:app, host=*, operation=READ, permissionType=ALLOW)",
        "pay (principal=User:*, host=10.0.0.7, operation=ALL, permissionType=DENY)",
    }
    assert rules_in(administer(ACLS, "--list")) == on_orders | others
    assert rules_in(administer(ACLS, "--list", "--principal", "User:app", "--topic", "orders")) == on_orders
    administer(ACLS, "--remove", "--force", *app, "--operation", "Write")
    administer(ACLS, "--remove", "--force", "--topic", "pay", "--resource-pattern-type", "prefixed")
    readers, _ = sorted(others, reverse=True)
    left = {rule for rule in on_orders if "WRITE" not in rule} | {readers}
    assert rules_in(administer(ACLS, "--list")) == left


def test_users_are_added_described_and_removed(administer: Tool) -> None:
    bob = ["--entity-type", "users", "--entity-name", "bob"]
    passwords = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"
    assert "Completed updating config for user bob." in administer(CONFIGS, *bob, "--alter", "--add-config", passwords)
    of_bob = "SCRAM credential configs for user-principal 'bob' are"
    assert administer(CONFIGS, *bob, "--describe") == (
        f"{of_bob} SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    )
    administer(CONFIGS, *bob, "--alter", "--delete-config", "SCRAM-SHA-256")
    everybody = administer(CONFIGS, "--entity-type", "users", "--describe").splitlines()
    assert f"{of_bob} SCRAM-SHA-512=iterations=4096" in everybody
    assert any("'alice'" in line for line in everybody)
    administer(CONFIGS, *bob, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "bob" not in administer(CONFIGS, "--entity-type", "users", "--describe")


def test_quotas_are_set_described_and_taken_away(administer: Tool) -> None:
    """Those of users and client ids, of both together, of the default, and of addresses."""
    for entity, quota in (
        (["--entity-type", "users", "--entity-name", "bob"], "producer_byte_rate=1048576"),
        (["--entity-type", "users", "--entity-default"], "consumer_byte_rate=2097152"),
        (["--entity-type", "clients", "--entity-name", "app"], "request_percentage=50.0"),
        (["--entity-type", "ips", "--entity-name", "10.0.0.7"], "connection_creation_rate=10"),
    ):
        administer(CONFIGS, *entity, "--alter", "--add-config", quota)
        assert quota in administer(CONFIGS, *entity, "--describe")
        administer(CONFIGS, *entity, "--alter", "--delete-config", quota.partition("=")[0])
        assert quota not in administer(CONFIGS, *entity, "--describe")
