"""The session of a member: whose it is, which epoch is due, and the space that it takes."""

from __future__ import annotations

import pytest

from semel.log.broker.share_sessions import EPOCH_LAST, SharerName, ShareSession, ShareSessions
from semel.log.core.access import USER, Principal
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused

ADA, EVE = Principal(USER, "ada"), Principal(USER, "eve")
NAME = SharerName("workers", "member")
TOPIC = bytes(16)


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(sessions_max=10, partitions_max=10)


@pytest.fixture
def session(sessions: ShareSessions) -> ShareSession:
    return sessions.begin(NAME, ADA, 1, "127.0.0.1")


def test_nobody_goes_on_with_the_session_of_another_user(sessions: ShareSessions, session: ShareSession) -> None:
    with pytest.raises(Refused) as refused:
        sessions.next(NAME, EVE, 1)
    assert refused.value.error == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.next(NAME, ADA, 1) is session


def test_after_the_last_epoch_comes_the_first_one(sessions: ShareSessions, session: ShareSession) -> None:
    session.epoch = EPOCH_LAST
    sessions.next(NAME, ADA, EPOCH_LAST)
    assert sessions.next(NAME, ADA, 1) is session


def test_a_partition_takes_its_space_once_until_it_is_forgotten(sessions: ShareSessions, session: ShareSession) -> None:
    for _ in range(20):
        sessions.add(session, [(TOPIC, 0), (TOPIC, 0), (TOPIC, 1)])
        sessions.forget(session, [(TOPIC, 0)])
    assert list(session.places) == [(TOPIC, 1)]
    sessions.add(session, [(TOPIC, index) for index in range(2, 5)])
    with pytest.raises(Refused):
        sessions.add(session, [(TOPIC, index) for index in range(5, 10)])
