"""Whoever looks for a coordinator is led here, in every version, and told in words when there is none."""

from typing import Any

import pytest

from asking import Asker
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import FIND_COORDINATOR

GROUP, TRANSACTION, SHARE = range(3)
HERE = 1


def find(ask: Asker, version: int, key_type: int, *keys: str) -> list[Any]:
    """What is said of each key, whatever the shape of the answer in this version."""
    answer = ask(FIND_COORDINATOR, version, key=keys[0], key_type=key_type, coordinator_keys=keys)
    return list(answer.coordinators) if version >= 4 else [answer]


@pytest.mark.parametrize("version", range(7))
def test_groups_are_looked_after_here(version: int, ask: Asker, semel_broker: FaultyBroker) -> None:
    for key in ("readers", ""):
        (found,) = find(ask, version, GROUP, key)
        assert (found.error_code, found.node_id) == (0, HERE)
        assert f"{found.host}:{found.port}" == semel_broker.bootstrap


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_are_looked_after_here(version: int, ask: Asker) -> None:
    (found,) = find(ask, version, TRANSACTION, "copier")
    assert (found.error_code, found.node_id) == (0, HERE)


@pytest.mark.parametrize("version", range(1, 7))
def test_keys_of_an_unknown_type_have_no_coordinator(version: int, ask: Asker) -> None:
    for key_type in (9, -1, SHARE):
        (found,) = find(ask, version, key_type, "readers")
        if key_type == SHARE and version >= 6:
            assert (found.error_code, found.node_id) == (0, HERE)
        else:
            assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
            assert (found.host, found.port) == ("", -1)
            assert str(key_type) in found.error_message


def test_several_keys_are_answered_in_their_order_and_each_once(ask: Asker) -> None:
    found = find(ask, 6, GROUP, "b", "a", "b", "c")
    assert [coordinator.key for coordinator in found] == ["b", "a", "c"]
    assert ask(FIND_COORDINATOR, 4, key_type=GROUP, coordinator_keys=()).coordinators == ()
