"""ConsumerGroupDescribe (69), versions 0 and 1: groups of the new protocol, with what each member reads."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps
from semel.log.broker.apis.lookup import names_seen
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED
from semel.log.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from semel.log.broker.serving import Serving
from semel.log.core.access import ResourceType
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_members import Member
from semel.log.core.groups.partitions import Partitions
from semel.wire import kafka
from semel.wire.refusals import GROUP_ID_NOT_FOUND, Refused
from semel.wire.steps import Steps
from semel.wire.versions import CONSUMER_GROUP_DESCRIBE

API: Final = Api(CONSUMER_GROUP_DESCRIBE, (0, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR)

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.consumer_group_describe.ConsumerGroupDescribeRequest
) -> Steps[kafka.consumer_group_describe.ConsumerGroupDescribeResponse]:
    groups = []
    for name in dict.fromkeys(request.group_ids):
        group = yield from attempted_in_steps(_describe(broker, exchange, name, request.include_authorized_operations))
        groups.append(_unknown(name, group) if isinstance(group, Refused) else group)
        yield 4
    return kafka.consumer_group_describe.ConsumerGroupDescribeResponse(groups=groups)


def _unknown(name: str, refusal: Refused) -> kafka.consumer_group_describe.DescribedGroup:
    return kafka.consumer_group_describe.DescribedGroup(
        error_code=refusal.error,
        error_message=refusal.message,
        group_id=name,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _describe(
    broker: Serving, exchange: Exchange, name: str, shows_operations: bool
) -> Steps[kafka.consumer_group_describe.DescribedGroup]:
    broker.guard.check(exchange, DESCRIBE_GROUP, name)
    machine = broker.log.state.groups.existing(name).machine
    if not isinstance(machine, ConsumerGroup):
        raise Refused(GROUP_ID_NOT_FOUND, f"group '{name}' is not a consumer group")
    operations = broker.guard.operations(exchange, ResourceType.GROUP, name) if shows_operations else NOT_ASKED
    return kafka.consumer_group_describe.DescribedGroup(
        group_id=name,
        authorized_operations=operations,
        group_state=machine.state_name,
        group_epoch=machine.epoch,
        assignment_epoch=machine.target_epoch,
        assignor_name=machine.assignor,
        members=(yield from _members(broker, exchange, machine)),
    )


def _members(
    broker: Serving, exchange: Exchange, machine: ConsumerGroup
) -> Steps[list[kafka.consumer_group_describe.Member]]:
    """Refused if one of them reads a topic that the client may not see. A topic to which a member only subscribes is
    left out.
    """
    # Members may join and leave meanwhile.
    members: list[kafka.consumer_group_describe.Member] = []
    for member in list(machine.members.values()):
        target = machine.target_of(member.member_id)
        for number, _ in (*member.held.indexes(), *target.indexes()):
            topic = broker.log.state.catalog.numbered(number)
            if topic is not None:
                broker.guard.check(exchange, DESCRIBE_TOPIC, topic.name)
        described = _member(broker, member, target)
        names = member.subscription.topic_names
        described.subscribed_topic_names = yield from names_seen(broker, exchange, names)
        members.append(described)
        yield 1 + len(member.held) + len(target)
    return members


def _member(broker: Serving, member: Member, target: Partitions) -> kafka.consumer_group_describe.Member:
    subscription = member.subscription
    return kafka.consumer_group_describe.Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=(),
        subscribed_topic_regex=subscription.topic_regex,
        assignment=_assignment(broker, member.held),
        target_assignment=_assignment(broker, target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(broker: Serving, partitions: Partitions) -> kafka.consumer_group_describe.Assignment:
    topic_partitions = kafka.consumer_group_describe.TopicPartitions
    return kafka.consumer_group_describe.Assignment(
        topic_partitions=[
            topic_partitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=indexes)
            for number, indexes in partitions.indexes()
            if (topic := broker.log.state.catalog.numbered(number)) is not None
        ]
    )
