"""A number is no right: a batch with the producer id of somebody else is refused, whoever may write to the topic.

Producer ids count up, so anybody can guess them; and a batch with the next sequence number of another producer would
take the place of that producer's own batch, which would then be answered as a duplicate and never be stored.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from asking import Asker
from guarded import ANYBODY, CLUSTER, STRANGER, TOPIC, TRANSACTIONAL_ID, WRITE, GuardedBroker, rule
from logged_in import BrokerOfUsers
from semel.log.broker.security_log import SecurityLog
from semel.log.core.access import CLUSTER_NAME, Operation
from semel.log.core.producer_ids import RANGE_IDS
from semel.testing.broker import FaultyBroker
from semel.testing.pair import BrokerPair
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import INIT_PRODUCER_ID, PRODUCE
from transacting import TransactionalProducer, committed

NOT_MAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
DENIED_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
PRODUCE_VERSIONS = (9, 11, 12, 13)


def new_id(ask: Asker, *, supplied: tuple[int, int] = (-1, -1)) -> int:
    """A producer id for a producer that is idempotent and no more."""
    given = {"producer_id": supplied[0], "producer_epoch": supplied[1]}
    answer = ask(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60_000, **given)
    assert answer.error_code == 0
    return int(answer.producer_id)


def send(
    ask: Asker,
    producer_id: int,
    sequence: int,
    *,
    name: str | None = None,
    epoch: int = 0,
    transactional: bool = False,
    value: bytes = b"",
) -> int:
    """The error code for a batch of one record with these numbers."""
    numbers = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    batch = bytes(encode_batch([Record(value)], **numbers, transactional=transactional))
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    answer = ask(PRODUCE, 12, transactional_id=name, acks=-1, timeout_ms=1000, topic_data=data)
    (appended,) = answer.responses[0].partition_responses
    return int(appended.error_code)


def values(broker: FaultyBroker) -> list[bytes | None]:
    return [record.value for record in broker.log("orders")]


# -- transactions: the number belongs to the name -------------------------------------------------------------------


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_producer_cannot_write_into_the_transaction_of_another_under_its_own_transactional_id(
    semel_broker: FaultyBroker, ask: Asker, version: int
) -> None:
    topic_id = ask.create("orders").topic_id
    anne, eve = TransactionalProducer(ask, "anne"), TransactionalProducer(ask, "eve")
    assert (anne.claim(), eve.claim()) == (0, 0)
    assert anne.add("orders") == [0]
    (producer_id, epoch) = anne.identity
    numbers = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    batch = bytes(encode_batch([Record(b"eve's")], **numbers, transactional=True))
    data = [{"name": "orders", "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch}]}]
    answer = ask(PRODUCE, version, transactional_id="eve", acks=-1, timeout_ms=1000, topic_data=data)
    (refused,) = answer.responses[0].partition_responses
    assert refused.error_code == NOT_MAPPED
    # Nothing has joined the transaction of the other, and no sequence number was taken.
    assert anne.send("orders", "anne's") == 0
    assert anne.end() == 0
    assert committed(ask, "orders") == ["anne's"]


def test_a_repetition_of_the_batch_of_another_is_no_duplicate_but_refused(ask: Asker) -> None:
    ask.create("orders")
    anne, eve = TransactionalProducer(ask, "anne"), TransactionalProducer(ask, "eve")
    assert (anne.claim(), eve.claim()) == (0, 0)
    assert anne.send("orders", "anne's", version=12) == 0
    (producer_id, epoch) = anne.identity
    assert send(ask, producer_id, 0, name="anne", epoch=epoch, transactional=True) == 0
    assert send(ask, producer_id, 0, name="eve", epoch=epoch, transactional=True) == NOT_MAPPED


@pytest.mark.parametrize("name", [None, "eve"])
def test_a_batch_outside_of_transactions_cannot_take_the_sequence_number_of_a_transactional_producer(
    ask: Asker, name: str | None
) -> None:
    ask.create("orders")
    anne, eve = TransactionalProducer(ask, "anne"), TransactionalProducer(ask, "eve")
    assert (anne.claim(), eve.claim()) == (0, 0)
    (producer_id, epoch) = anne.identity
    assert send(ask, producer_id, 0, name=name, epoch=epoch) == NOT_MAPPED
    assert anne.send("orders", "anne's", version=12) == 0
    assert anne.end() == 0
    assert committed(ask, "orders") == ["anne's"]


def test_to_name_a_transactional_id_helps_only_those_who_may_write_with_it(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    admin.create("orders")
    anne = TransactionalProducer(admin, "anne")
    assert anne.claim() == 0
    broker.add(rule(TOPIC, "orders", WRITE), rule(TRANSACTIONAL_ID, "eve", WRITE))
    (producer_id, epoch) = anne.identity
    for transactional in (False, True):
        refusal = DENIED_ID if transactional else NOT_MAPPED
        assert send(stranger, producer_id, 0, name="anne", epoch=epoch, transactional=transactional) == refusal
    assert send(stranger, producer_id, 0, name="eve", epoch=epoch, transactional=True) == NOT_MAPPED
    broker.add(rule(TRANSACTIONAL_ID, "anne", WRITE))
    assert send(stranger, producer_id, 0, name="anne", epoch=epoch, transactional=True) == 0


def test_every_request_of_a_transaction_refuses_the_number_of_another(semel_broker: FaultyBroker, ask: Asker) -> None:
    ask.create("orders")
    anne, eve = TransactionalProducer(ask, "anne"), TransactionalProducer(ask, "eve")
    assert (anne.claim(), eve.claim(), anne.add("orders")) == (0, 0, [0])
    stolen = anne.identity
    assert eve.add("orders", identity=stolen) == [NOT_MAPPED]
    assert eve.add_group("readers", identity=stolen) == NOT_MAPPED
    for version in (4, 5):
        assert eve.commit_offset("readers", "orders", 7, version=version, identity=stolen) == NOT_MAPPED
        for is_commit in (True, False):
            assert eve.end(committed=is_commit, version=version, identity=stolen) == NOT_MAPPED
    assert eve.claim(supplied=stolen) == ErrorCode.PRODUCER_FENCED
    assert anne.end() == 0


# -- idempotent producers: the number belongs to the principal ------------------------------------------------------


@pytest.fixture
def users() -> Iterator[BrokerOfUsers]:
    with BrokerOfUsers() as broker:
        with broker.administrator() as admin:
            admin.create("orders")
        for user in ("anne", "eve"):
            broker.allow(user, (TOPIC, "orders", WRITE))
        yield broker


def test_nobody_takes_the_next_sequence_number_of_another_principals_producer(users: BrokerOfUsers) -> None:
    with users.log_in("anne") as anne, users.log_in("eve") as eve:
        annes, eves = new_id(anne), new_id(eve)
        assert send(anne, annes, 0, value=b"1") == 0
        assert send(eve, annes, 1, value=b"stolen") == NOT_MAPPED
        assert send(eve, annes, 0) == NOT_MAPPED
        assert send(anne, annes, 1, value=b"2") == 0
        assert send(eve, eves, 0, value=b"3") == 0
    assert values(users) == [b"1", b"2", b"3"]


def test_nobody_writes_with_an_id_that_another_will_get_or_that_nobody_has(users: BrokerOfUsers) -> None:
    with users.log_in("anne") as anne, users.log_in("eve") as eve:
        annes, eves = new_id(anne), new_id(eve)
        for producer_id in (annes + 1, annes + 1000, max(annes, eves) + RANGE_IDS, 0, 1000, 2**62):
            assert send(eve, producer_id, 0) == NOT_MAPPED
        assert send(anne, new_id(anne), 0) == 0


def test_two_connections_of_one_principal_share_its_ids(users: BrokerOfUsers) -> None:
    with users.log_in("anne") as one, users.log_in("anne") as other:
        producer_id = new_id(one)
        assert (send(one, producer_id, 0), send(other, producer_id, 1)) == (0, 0)


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_the_owners_of_ids_outlive_the_broker(users: BrokerOfUsers, ending: str) -> None:
    with users.log_in("anne") as anne, users.log_in("eve") as eve:
        annes = new_id(anne)
        new_id(eve)
        assert send(anne, annes, 0) == 0
    getattr(users, ending)()
    users.start()
    with users.log_in("anne") as anne, users.log_in("eve") as eve:
        assert send(eve, annes, 1) == NOT_MAPPED
        assert send(anne, annes, 1) == 0
        assert new_id(anne) not in (annes, new_id(eve))


def test_an_id_that_a_client_sends_to_get_a_new_one_gives_it_no_right_to_that(users: BrokerOfUsers) -> None:
    with users.log_in("anne") as anne, users.log_in("eve") as eve:
        annes = new_id(anne)
        eves = new_id(eve, supplied=(annes, 0))
        assert eves != annes
        assert send(eve, annes, 0) == NOT_MAPPED
        assert send(anne, annes, 0) == 0


def test_the_id_of_a_transactional_id_cannot_be_used_without_that(users: BrokerOfUsers) -> None:
    users.allow("anne", (TRANSACTIONAL_ID, "till", WRITE), (CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE))
    with users.log_in("anne") as ask, users.log_in("eve") as eve:
        anne = TransactionalProducer(ask, "till")
        assert anne.claim() == 0
        (producer_id, epoch) = anne.identity
        for beyond in (0, 1):
            assert send(eve, producer_id + beyond, 0, epoch=epoch) == NOT_MAPPED
        assert anne.send("orders", "anne's", version=12) == 0


def test_a_batch_with_the_id_of_another_is_told_in_the_security_log(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    with GuardedBroker(security_log=SecurityLog(path)) as broker:
        with broker.administrator() as admin, broker.stranger() as stranger:
            admin.create("orders")
            broker.add(rule(TOPIC, "orders", WRITE))
            anne = TransactionalProducer(admin, "anne")
            assert anne.claim() == 0
            assert send(stranger, anne.identity[0], 0) == NOT_MAPPED
        denied = [json.loads(line) for line in path.read_text().splitlines() if "access_denied" in line]
    (event,) = denied
    assert (event["resource"], event["name"], event["operation"]) == ("PRODUCER_ID", anne.identity[0], "WRITE")
    assert (event["principal"], event["peer"].rpartition(":")[0]) == (ANYBODY, STRANGER)


def test_without_access_rules_every_client_may_write_with_every_id(semel_broker: FaultyBroker, ask: Asker) -> None:
    ask.create("orders")
    producer_id = new_id(ask)
    with Asker(semel_broker.bootstrap) as other:
        assert (send(ask, producer_id, 0), send(other, producer_id, 1), send(other, 7, 0)) == (0, 0, 0)


def test_the_owners_of_ids_are_known_to_the_standby_that_takes_over() -> None:
    with BrokerPair(access_rules=True, super_users=[ANYBODY], insecure=True) as pair:
        with Asker(pair.active.bootstrap) as ask:
            ask.create("orders")
            own = new_id(ask)
            assert send(ask, own, 0) == 0
        pair.take_over(comes_back=False)
        with Asker(pair.active.bootstrap) as ask:
            assert send(ask, own, 1) == 0
            assert send(ask, own + RANGE_IDS, 0) == NOT_MAPPED
