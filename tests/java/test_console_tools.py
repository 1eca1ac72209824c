"""Kafka's own console tools work on the broker as on Kafka: topics, groups, transactions, offsets, records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
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


def test_transactions_are_listed_and_described(tool: Tool, run_java: Run, bootstrap: str, topic: str) -> None:
    run_java("semel.Transactions", bootstrap, topic)
    (listed,) = [line.split() for line in tool(TRANSACTIONS, "list").splitlines() if line.startswith(f"{topic} ")]
    assert listed[-1] == "CompleteCommit"
    assert "CompleteCommit" in tool(TRANSACTIONS, "describe", "--transactional-id", topic)
    producers = tool(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0").splitlines()
    assert producers[0].split()[0] == "ProducerId"
    assert len(producers) > 1
    assert tool(TRANSACTIONS, "find-hanging", "--broker-id", "1").splitlines()[1:] == []
