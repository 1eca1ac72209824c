"""ShareAcknowledge: a member accepts, releases or rejects what it holds, and nothing else."""

from __future__ import annotations

import pytest

from asking import Asker
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from sharing import ACCEPT, GAP, REJECT, RELEASE, RENEW, another, configure, sharer


def test_each_record_has_its_own_word(ask: Asker) -> None:
    ada = sharer(ask, records=5)
    ada.got()
    assert ada.acknowledge((0, 3, [ACCEPT, RELEASE, REJECT, GAP]), (4, 4, [RELEASE])) == 0
    assert ada.got() == [(1, 1, 2), (4, 4, 2)]


def test_nobody_acknowledges_for_others(ask: Asker) -> None:
    ada = sharer(ask, records=2)
    bob = another(ada, "bob")
    ada.got()
    bob.got()
    assert bob.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert ada.acknowledge((0, 1, [ACCEPT])) == 0
    assert ada.acknowledge((0, 1, [ACCEPT])) == 0, "they are done, whoever says so again"


def test_a_lock_is_renewed(semel_broker: FaultyBroker, ask: Asker) -> None:
    ada = sharer(ask, records=1)
    bob = another(ada, "bob")
    ada.got()
    assert ada.acknowledge((0, 0, [RENEW])) == ErrorCode.INVALID_REQUEST, "the request does not say so"
    semel_broker.skip(20.0)
    assert ada.acknowledge((0, 0, [RENEW]), is_renew_ack=True) == 0
    semel_broker.skip(20.0)
    assert bob.got() == []
    configure(ask, renew_acknowledge_enable="false")
    assert ada.acknowledge((0, 0, [RENEW]), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("acks", [(1, 0, [ACCEPT]), (0, 1, [ACCEPT, ACCEPT, ACCEPT]), (0, 0, [5]), (0, 0, [])])
def test_what_makes_no_sense_is_refused(ask: Asker, acks: tuple[int, int, list[int]]) -> None:
    ada = sharer(ask, records=2)
    ada.got()
    assert ada.acknowledge(acks) == ErrorCode.INVALID_REQUEST
    assert ada.acknowledge((0, 1, [ACCEPT]), version=1) == 0


def test_the_last_acknowledgement_ends_the_session_and_releases_the_rest(ask: Asker) -> None:
    ada = sharer(ask, records=2)
    bob = another(ada, "bob")
    ada.got()
    assert ada.acknowledge((0, 0, [ACCEPT]), share_session_epoch=-1) == 0
    assert bob.got() == [(1, 1, 2)]
    assert ada.acknowledge((1, 1, [ACCEPT]), share_session_epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert ada.acknowledge((1, 1, [ACCEPT]), share_session_epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
