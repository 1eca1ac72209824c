"""Consumers in a group share their partitions, however they come and go, and the group goes on where it had come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from client_contract import Client, GroupProtocol, Record
from client_kinds import CLIENTS
from group_members import RunningMember, shared_evenly

from eventually import eventually
from semel.testing.served import ServedBroker

Serve = Callable[..., ServedBroker]

PARTITIONS = 6
WAYS = [(kind, protocol) for kind in CLIENTS.values() for protocol in kind.group_protocols]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0].name}-{way[1]}")
def way(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[tuple[Client, GroupProtocol]]:
    """Every client with every way of sharing that it knows."""
    kind, protocol = request.param
    with kind(bootstrap) as client:
        yield client, protocol


def test_members_share_the_partitions_as_they_come_and_go(way: tuple[Client, GroupProtocol], topic: str) -> None:
    client, protocol = way
    client.create_topic(topic, PARTITIONS)
    places = [(topic, partition) for partition in range(PARTITIONS)]

    def join() -> RunningMember:
        return RunningMember(lambda: client.member(topic, [topic], protocol=protocol))

    members = [join(), join()]
    sent = set()
    with client.producer() as producer:

        def everything_is_read(stage: bytes) -> bool:
            for partition in range(PARTITIONS):
                value = b"%s %d" % (stage, partition)
                producer.send(topic, partition, [Record(value)])
                sent.add(value)
            return eventually(lambda: sent <= {stored.record.value for member in everybody for stored in member.read})

        everybody = list(members)
        assert eventually(lambda: shared_evenly(members, places))
        assert everything_is_read(b"two")
        members.append(join())
        everybody.append(members[-1])
        assert eventually(lambda: shared_evenly(members, places))
        assert everything_is_read(b"three")
        members.pop(0).close()
        members.pop(0).close()
        assert eventually(lambda: shared_evenly(members, places))
        assert everything_is_read(b"one")
    members.pop().close()


def test_a_group_goes_on_where_it_committed(way: tuple[Client, GroupProtocol], topic: str) -> None:
    client, protocol = way
    client.create_topic(topic, 2)
    with client.producer() as producer:
        for partition in range(2):
            producer.send(topic, partition, [Record(b"%d" % number) for number in range(10)])
    with RunningMember(lambda: client.member(topic, [topic], protocol=protocol)) as first:
        assert eventually(lambda: len(first.read) == 20)
        assert first.ask(lambda member: member.committed((topic, 0))) is None
        assert first.ask(lambda member: member.position((topic, 0))) == 10
        first.ask(lambda member: member.commit({(topic, 0): 7, (topic, 1): 10}))
        assert first.ask(lambda member: member.committed((topic, 0))) == 7
        assert first.ask(lambda member: client.latest(topic, 0) - member.position((topic, 0))) == 0
    with RunningMember(lambda: client.member(topic, [topic], protocol=protocol)) as second:
        assert eventually(lambda: len(second.read) == 3)
        assert [(stored.partition, stored.offset) for stored in second.read] == [(0, 7), (0, 8), (0, 9)]
        with client.producer() as producer:
            producer.send(topic, 1, [Record(b"new")])
        assert eventually(lambda: len(second.read) == 4)
        assert (second.read[3].partition, second.read[3].offset) == (1, 10)


def test_a_static_member_that_comes_back_finds_its_partitions(way: tuple[Client, GroupProtocol], topic: str) -> None:
    """And nobody else notices: that is what a member is static for."""
    client, protocol = way
    client.create_topic(topic, PARTITIONS)
    places = [(topic, partition) for partition in range(PARTITIONS)]

    def join(name: str) -> RunningMember:
        return RunningMember(lambda: client.member(topic, [topic], protocol=protocol, static_name=name))

    with join("stays") as stays:
        goes = join("goes")
        assert eventually(lambda: shared_evenly([stays, goes], places))
        before = goes.assignment
        assignments_before = len(stays.assignments)
        goes.close()
        with join("goes") as back:
            assert eventually(lambda: back.assignment == before)
            assert len(stays.assignments) == assignments_before


def test_a_group_finds_a_new_topic_by_its_pattern(way: tuple[Client, GroupProtocol], topic: str) -> None:
    client, protocol = way
    client.create_topic(f"{topic}-a")
    client.create_topic(f"not-{topic}")
    with (
        RunningMember(lambda: client.member(topic, [], protocol=protocol, pattern=f"^{topic}-.*")) as member,
        client.producer() as producer,
    ):
        assert eventually(lambda: member.assignment == {(f"{topic}-a", 0)})
        client.create_topic(f"{topic}-b")
        assert eventually(lambda: member.assignment == {(f"{topic}-a", 0), (f"{topic}-b", 0)})
        producer.send(f"{topic}-b", 0, [Record(b"found")])
        assert eventually(lambda: [stored.record.value for stored in member.read] == [b"found"])


@pytest.mark.parametrize(
    "end", [pytest.param(ServedBroker.stop, marks=pytest.mark.slow), ServedBroker.kill], ids=["stopped", "killed"]
)
@pytest.mark.parametrize(("kind", "protocol"), WAYS, ids=[f"{kind.name}-{protocol}" for kind, protocol in WAYS])
def test_a_group_outlives_its_broker(
    serve: Serve, topic: str, kind: type[Client], protocol: GroupProtocol, end: Callable[[ServedBroker], None]
) -> None:
    broker = serve()
    with kind(broker.bootstrap) as client:
        client.create_topic(topic, 2)
        with client.producer() as producer:
            producer.send(topic, 0, [Record(b"%d" % number) for number in range(5)])
            with RunningMember(lambda: client.member(topic, [topic], protocol=protocol)) as member:
                assert eventually(lambda: len(member.read) == 5)
                member.ask(lambda member: member.commit({(topic, 0): 3}))
                end(broker)
                broker.start()
                producer.send(topic, 1, [Record(b"after")])
                assert eventually(lambda: len(member.read) == 6)
                assert member.ask(lambda member: member.committed((topic, 0))) == 3
            with RunningMember(lambda: client.member(topic, [topic], protocol=protocol)) as member:
                assert eventually(lambda: len(member.read) == 3)
                assert sorted((stored.partition, stored.offset) for stored in member.read) == [(0, 3), (0, 4), (1, 0)]
