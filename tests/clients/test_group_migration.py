"""A group goes on all the time while its members are replaced, one by one, by such as speak the other protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_contract import Client, GroupProtocol, Record
from client_kinds import CLIENTS
from group_members import RunningMember, shared_evenly

from eventually import eventually

PARTITIONS = 6
KINDS = [kind for kind in CLIENTS.values() if "consumer" in kind.group_protocols]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Client]:
    """Every client that speaks both protocols."""
    with request.param(bootstrap) as client:
        yield client


@pytest.mark.parametrize("classic", [pytest.param("eager", marks=pytest.mark.slow), "cooperative"])
def test_a_group_goes_over_to_the_new_protocol_and_back(client: Client, topic: str, classic: GroupProtocol) -> None:
    client.create_topic(topic, PARTITIONS)
    places = [(topic, partition) for partition in range(PARTITIONS)]
    sent: list[bytes] = []
    everybody: list[RunningMember] = []

    def join(protocol: GroupProtocol) -> RunningMember:
        everybody.append(RunningMember(lambda: client.member(topic, [topic], protocol=protocol)))
        return everybody[-1]

    with client.producer() as producer:

        def share(*members: RunningMember) -> None:
            assert eventually(lambda: shared_evenly(members, places))
            for partition in range(PARTITIONS):
                sent.append(b"%d" % len(sent))
                producer.send(topic, partition, [Record(sent[-1])])
            assert eventually(
                lambda: set(sent) <= {stored.record.value for member in everybody for stored in member.read}
            )

        old, other = join(classic), join(classic)
        share(old, other)
        new = join("consumer")
        share(old, other, new)
        other.close()
        share(old, new)
        old.close()
        share(new)
        old_again = join(classic)
        share(new, old_again)
        new.close()
        share(old_again)
        old_again.close()


def test_an_empty_group_is_of_the_protocol_of_its_next_member(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.producer() as producer:
        producer.send(topic, 0, [Record(b"%d" % number) for number in range(3)])

    def go_on_with(protocol: GroupProtocol, offset: int) -> None:
        with RunningMember(lambda: client.member(topic, [topic], protocol=protocol)) as member:
            assert eventually(lambda: len(member.read) == 3 - offset)
            assert member.read[0].offset == offset
            member.ask(lambda member: member.commit({(topic, 0): offset + 1}))

    go_on_with("eager", 0)
    go_on_with("consumer", 1)
    go_on_with("cooperative", 2)
