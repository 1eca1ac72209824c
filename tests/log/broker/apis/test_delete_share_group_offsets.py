"""DeleteShareGroupOffsets: a person has a group without members begin anew in a topic."""

from __future__ import annotations

from asking import Asker
from semel.wire.errors import ErrorCode
from semel.wire.versions import DELETE_SHARE_GROUP_OFFSETS
from sharing import ACCEPT, another, sharer

REQUEST: dict[str, object] = {"group_id": "workers", "topics": [{"topic_name": "orders"}]}


def test_the_group_begins_anew(ask: Asker) -> None:
    ada = sharer(ask, records=2)
    ada.got()
    ada.acknowledge((0, 1, [ACCEPT]), share_session_epoch=-1)
    wanted = {"group_id": "workers", "topics": [{"topic_name": "jobs"}]}
    assert ask(DELETE_SHARE_GROUP_OFFSETS, **wanted).error_code == ErrorCode.NON_EMPTY_GROUP
    ada.beat(-1)
    assert ask(DELETE_SHARE_GROUP_OFFSETS, **wanted).responses[0].error_code == 0
    again = ask(DELETE_SHARE_GROUP_OFFSETS, **wanted).responses[0]
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert another(ada, "bob").got() == [(0, 1, 1)]
