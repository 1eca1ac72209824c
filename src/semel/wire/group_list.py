"""The answer to ListGroups, from the client's side, versions 0 to 5.

A cluster may have 100,000 groups, and a client needs three fields of each: the general codec takes several times as
much time and memory. It is the oracle of this one in the tests. This codec must never know what a group is for.
"""

from typing import Final, NamedTuple

from semel.wire.frames import read_response
from semel.wire.primitives import INT16, INT32, Buffer, read_length, read_string, skip_tagged_fields
from semel.wire.versions import LIST_GROUPS

_THROTTLE_FROM: Final = 1
_FLEXIBLE_FROM: Final = 3
_STATE_FROM: Final = 4
_TYPE_FROM: Final = 5


class GroupInList(NamedTuple):
    name: str
    # None in versions without it.
    state: str | None
    kind: str | None


def decode_response(version: int, frame: Buffer) -> tuple[int, list[GroupInList]]:
    """The error code and the groups."""
    return read_response(LIST_GROUPS, version, frame, "ListGroups", _decode)


def _decode(version: int, view: memoryview, at: int) -> tuple[int, list[GroupInList]]:
    flexible = version >= _FLEXIBLE_FROM
    if version >= _THROTTLE_FROM:
        at += INT32.size
    error_code = INT16.unpack_from(view, at)[0]
    count, at = read_length(view, at + INT16.size, flexible)
    # All groups have the same few texts, so each text is made only once.
    shared: dict[str, str] = {}
    groups = []
    for _ in range(count):
        name, at = read_string(view, at, flexible)
        _, at = read_string(view, at, flexible)
        state = kind = None
        if version >= _STATE_FROM:
            state, at = read_string(view, at, flexible)
            state = shared.setdefault(state, state)
        if version >= _TYPE_FROM:
            kind, at = read_string(view, at, flexible)
            kind = shared.setdefault(kind, kind)
        if flexible:
            at = skip_tagged_fields(view, at)
        groups.append(GroupInList(name, state, kind))
    return error_code, groups
