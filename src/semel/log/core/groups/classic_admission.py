"""Whether a member may join a classic group: the others must support one of its protocols, and there must be memory for
it.

This file must never change a group.
"""

from semel.log.core.groups.classic_group import ClassicGroup, State
from semel.log.core.groups.classic_members import Member
from semel.log.core.groups.classic_steps import ClassicRules, JoinRequest
from semel.wire import refusals
from semel.wire.refusals import Refused


def check_join(group: ClassicGroup, request: JoinRequest, rules: ClassicRules) -> None:
    """`Refused` if this member may not join the group."""
    if group.state is State.DEAD:
        raise Refused(refusals.COORDINATOR_NOT_AVAILABLE, "the group is gone")
    _check_size(group, request, rules)
    if group.state is State.EMPTY:
        is_consistent = bool(request.protocol_type and request.protocols)
    else:
        is_consistent = request.protocol_type == group.protocol_type and group.members.all_know_one_of(
            request.protocols
        )
    if not is_consistent:
        raise Refused(refusals.INCONSISTENT_GROUP_PROTOCOL, "the group has no protocol that this member knows")


def _check_size(group: ClassicGroup, request: JoinRequest, rules: ClassicRules) -> None:
    if _said_to_be(group, request) is None:
        count = len(group.members) + len(group.expected) - (request.member_id in group.expected)
        if count >= rules.members_max:
            raise Refused(
                refusals.GROUP_MAX_SIZE_REACHED,
                f"the group has {count} members, no more are allowed (group_members_max)",
            )
    more_bytes = growth_bytes(group, request)
    if more_bytes > 0 and group.size_bytes + more_bytes > rules.group_bytes_max:
        raise Refused(
            refusals.GROUP_MAX_SIZE_REACHED,
            f"the members of the group take {group.size_bytes} bytes, no more are allowed (group_bytes_max)",
        )


def growth_bytes(group: ClassicGroup, request: JoinRequest) -> int:
    """By how much the memory of the group's members would grow with this request."""
    member = _said_to_be(group, request)
    known_bytes = group.expected_bytes(request.member_id) if member is None else member.brought_bytes
    return request.brought_bytes - known_bytes


def _said_to_be(group: ClassicGroup, request: JoinRequest) -> Member | None:
    """The member that sends the request, or the static member that it replaces; None for a new member."""
    member = group.members.get(request.member_id)
    if member is None and request.instance_id is not None:
        member = group.members.of_instance(request.instance_id)
    return member
