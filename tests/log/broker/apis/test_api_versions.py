"""What clients are told of the features in force, by which they choose how to speak."""

import pytest

from asking import Asker
from semel.log.broker.apis import APIS
from semel.wire.errors import ErrorCode
from semel.wire.versions import API_VERSIONS, END_TXN, PRODUCE, TXN_OFFSET_COMMIT

CLIENT = {"client_software_name": "test", "client_software_version": "1"}


@pytest.mark.parametrize("version", [3, 4])
def test_the_second_version_of_transactions_and_the_new_groups_are_in_force(ask: Asker, version: int) -> None:
    answer = ask(API_VERSIONS, version, **CLIENT)
    assert answer.finalized_features_epoch >= 0
    assert {(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features} == {
        ("transaction.version", 2, 2),
        ("group.version", 1, 1),
        ("share.version", 1, 1),
    }


def test_clients_that_do_not_know_level_0_are_not_shown_it(ask: Asker) -> None:
    assert ask(API_VERSIONS, 3, **CLIENT).supported_features == ()
    supported = ask(API_VERSIONS, 4, **CLIENT).supported_features
    assert [(one.name, one.min_version, one.max_version) for one in supported] == [
        ("transaction.version", 0, 2),
        ("group.version", 0, 1),
        ("share.version", 0, 1),
    ]


def test_what_the_second_version_of_transactions_needs_is_announced() -> None:
    assert 12 in APIS[PRODUCE].served
    assert 5 in APIS[TXN_OFFSET_COMMIT].served
    assert 5 in APIS[END_TXN].served


@pytest.mark.parametrize("name", ["", "-kafka", "kafka-", "my client", "kafka\n", "k\x1b[31m"])
def test_a_client_whose_software_has_no_proper_name_is_refused(ask: Asker, name: str) -> None:
    for fields in ({"client_software_name": name}, {"client_software_version": name}):
        answer = ask(API_VERSIONS, 3, **CLIENT | fields)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, ())
    assert ask(API_VERSIONS, 3, client_software_name="apache-kafka-java", client_software_version="4.1.0").api_keys
