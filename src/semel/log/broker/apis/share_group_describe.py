"""ShareGroupDescribe (77), version 1: share groups, with the partitions in which each member looks for records."""

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
from semel.log.core.groups.consumer_members import Member
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import SHARE_GROUP_DESCRIBE

API: Final = Api(SHARE_GROUP_DESCRIBE, (1, 1), rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC), standby=Here.NOT_COORDINATOR)


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.share_group_describe.ShareGroupDescribeRequest
) -> Steps[kafka.share_group_describe.ShareGroupDescribeResponse]:
    api = kafka.share_group_describe
    groups = []
    for name in dict.fromkeys(request.group_ids):
        group = yield from attempted_in_steps(_describe(broker, exchange, name, request.include_authorized_operations))
        if isinstance(group, Refused):
            group = api.DescribedGroup(
                error_code=group.error,
                error_message=group.message,
                group_id=name,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
        groups.append(group)
        yield 4
    return api.ShareGroupDescribeResponse(groups=groups)


def _describe(
    broker: Serving, exchange: Exchange, name: str, shows_operations: bool
) -> Steps[kafka.share_group_describe.DescribedGroup]:
    broker.guard.check(exchange, DESCRIBE_GROUP, name)
    machine = broker.share_groups.existing(name)
    members = []
    # Members may join and leave meanwhile.
    for member in list(machine.members.values()):
        members.append((yield from _member(broker, exchange, member)))
        yield 1 + len(member.held)
    return kafka.share_group_describe.DescribedGroup(
        group_id=name,
        group_state=machine.state_name,
        group_epoch=machine.epoch,
        assignment_epoch=machine.target_epoch,
        assignor_name=machine.assignor,
        members=members,
        authorized_operations=broker.guard.operations(exchange, ResourceType.GROUP, name)
        if shows_operations
        else NOT_ASKED,
    )


def _member(broker: Serving, exchange: Exchange, member: Member) -> Steps[kafka.share_group_describe.Member]:
    """Refused if it has a partition of a topic that the client may not see."""
    api = kafka.share_group_describe
    topics = []
    for number, indexes in member.held.indexes():
        topic = broker.log.state.catalog.numbered(number)
        if topic is not None:
            broker.guard.check(exchange, DESCRIBE_TOPIC, topic.name)
            topics.append(api.TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=indexes))
    return api.Member(
        member_id=member.member_id,
        rack_id=member.subscription.rack_id,
        member_epoch=member.epoch,
        client_id=member.subscription.client_id,
        client_host=member.subscription.client_host,
        subscribed_topic_names=(yield from names_seen(broker, exchange, member.subscription.topic_names)),
        assignment=api.Assignment(topic_partitions=topics),
    )
