"""LeaveGroup (13), versions 0 to 5: removes members from a group, since version 3 several at once."""

from __future__ import annotations

from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import READ_GROUP
from semel.log.broker.serving import Serving
from semel.log.core.groups.classic_steps import Leaver
from semel.wire import kafka
from semel.wire.refusals import UNKNOWN_MEMBER_ID, Refused
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import LEAVE_GROUP

API: Final = Api(LEAVE_GROUP, (0, 5), rights=(READ_GROUP,), standby=Here.NOT_COORDINATOR)

_SEVERAL_FROM = 3
# Large enough that all members of a group of the usual size leave in one generation.
_LEAVERS_AT_ONCE = 500


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.leave_group.LeaveGroupRequest
) -> Steps[kafka.leave_group.LeaveGroupResponse]:
    api = kafka.leave_group
    refusal = broker.guard.error(exchange, READ_GROUP, request.group_id)
    if refusal:
        return api.LeaveGroupResponse(error_code=refusal)
    yield from broker.consumer_groups.look_up(request.group_id)
    if exchange.version < _SEVERAL_FROM:
        errors = attempted(_leave, broker, request.group_id, [Leaver(request.member_id, None)])
        return api.LeaveGroupResponse(error_code=errors.error if isinstance(errors, Refused) else errors[0])
    leavers = [Leaver(member.member_id, member.group_instance_id) for member in request.members]
    members: list[kafka.leave_group.MemberResponse] = []
    for first in range(0, len(leavers) or 1, _LEAVERS_AT_ONCE):
        some = leavers[first : first + _LEAVERS_AT_ONCE]
        errors = attempted(_leave, broker, request.group_id, some)
        if isinstance(errors, Refused):
            return api.LeaveGroupResponse(error_code=errors.error)
        members += [
            api.MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error)
            for leaver, error in zip(some, errors, strict=True)
        ]
        yield APPEND_PIECES + len(some)
    return api.LeaveGroupResponse(members=members)


def _leave(broker: Serving, group_id: str, leavers: list[Leaver]) -> list[int]:
    """The error code of each of them."""
    try:
        return broker.groups.leave(group_id, leavers)
    except Refused as refused:
        if refused.error != UNKNOWN_MEMBER_ID:
            raise
        # The group does not exist, so none of them is a member.
        return [refused.error] * len(leavers)
