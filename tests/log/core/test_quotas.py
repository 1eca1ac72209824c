"""Quotas: which one counts for a client, what may be set, and all of it held against a naive model."""

import math
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from administration import read_again
from refusal import refused
from semel.log.core.entries import QuotasChanged
from semel.log.core.quotas import BUSY, CLIENT_ID, CONNECTED, FETCHED, IP, PRODUCED, USER, Entity, Quotas, match_of
from semel.log.storage.encoding import decode, encode
from semel.wire.refusals import INVALID_REQUEST, POLICY_VIOLATION, UNSUPPORTED_VERSION

ALICE, APP = (USER, "alice"), (CLIENT_ID, "app")
SOME_USER, SOME_CLIENT = (USER, None), (CLIENT_ID, None)
# In Apache Kafka's order (KIP-55), and under which name each is used up.
PRECEDENCE: tuple[tuple[Entity, tuple[str, str]], ...] = (
    ((ALICE, APP), ("alice", "app")),
    ((ALICE, SOME_CLIENT), ("alice", "app")),
    ((ALICE,), ("alice", "")),
    ((SOME_USER, APP), ("alice", "app")),
    ((SOME_USER, SOME_CLIENT), ("alice", "app")),
    ((SOME_USER,), ("alice", "")),
    ((APP,), ("", "app")),
    ((SOME_CLIENT,), ("", "app")),
)
EXACT, DEFAULT, ANY = range(3)


def put(quotas: Quotas, entity: Entity, **values: float | None) -> None:
    entry = quotas.decide(entity, values.items())
    if entry is not None:
        kind, parts = encode(entry)
        read = decode(kind, memoryview(b"".join(map(bytes, parts))))
        assert read == entry
        assert isinstance(read, QuotasChanged)
        quotas.check(read)
        quotas.apply(read)


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_first_quota_that_is_set_counts_in_the_order_of_apache_kafka(first: int) -> None:
    quotas = Quotas()
    for number, (entity, _) in enumerate(PRECEDENCE[first:], start=first):
        put(quotas, entity, producer_byte_rate=number + 1)
    limit = quotas.limit(PRODUCED, "alice", "app")
    assert limit == (PRECEDENCE[first][1], first + 1)


def test_each_key_is_looked_for_by_itself() -> None:
    quotas = Quotas()
    put(quotas, (ALICE, APP), consumer_byte_rate=1)
    put(quotas, (SOME_CLIENT,), producer_byte_rate=2)
    assert quotas.limit(PRODUCED, "alice", "app") == (("", "app"), 2)
    assert quotas.limit(FETCHED, "alice", "app") == (("alice", "app"), 1)
    assert quotas.limit(BUSY, "alice", "app") is None
    assert quotas.limit(FETCHED, "bob", "app") is None


def test_an_address_has_the_quota_of_its_own_or_the_default_however_it_is_written() -> None:
    quotas = Quotas()
    assert quotas.connections_per_second("10.0.0.7") is None
    put(quotas, ((IP, None),), connection_creation_rate=10)
    put(quotas, ((IP, "0:0:0:0:0:0:0:1"),), connection_creation_rate=20)
    put(quotas, ((IP, "::ffff:10.0.0.7"),), connection_creation_rate=30)
    for addresses, allowed in (
        (("::1", "0:0:0:0:0:0:0:1"), 20),
        (("10.0.0.7", "::ffff:10.0.0.7"), 30),
        (("10.0.0.8", "::2"), 10),
    ):
        assert {quotas.connections_per_second(address) for address in addresses} == {allowed}


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ((), {}, "Invalid client quota entity"),
        ((ALICE, (IP, "10.0.0.7")), {}, "Invalid client quota entity"),
        ((ALICE, (USER, "bob")), {}, "duplicate entity entry user"),
        (((USER, ""),), {}, "Empty user not supported"),
        ((("group", "readers"),), {}, "Unhandled client quota entity type: group"),
        (((USER, "x" * 1_025),), {}, "at most 1024 bytes"),
        (((USER, "é" * 513),), {}, "at most 1024 bytes"),
        (((IP, "localhost"),), {}, "localhost is not a valid IP address"),
        ((ALICE,), {CONNECTED: 1}, "Invalid configuration key connection_creation_rate"),
        ((ALICE,), {"controller_mutation_rate": 1}, "Invalid configuration key controller_mutation_rate"),
        (((IP, None),), {PRODUCED: 1}, "Invalid configuration key producer_byte_rate"),
        ((ALICE,), {PRODUCED: 0}, "must be greater than 0"),
        ((ALICE,), {PRODUCED: -1}, "must be greater than 0"),
        ((ALICE,), {BUSY: math.nan}, "must be greater than 0"),
        ((ALICE,), {FETCHED: math.inf}, "must be greater than 0"),
        ((ALICE,), {FETCHED: 1.5}, "cannot be a fractional value"),
        ((ALICE,), {PRODUCED: 2.0**64}, "too large"),
        (((IP, None),), {CONNECTED: 2.0**31}, "too large"),
    ],
)
def test_what_no_quota_may_be_is_refused(entity: Entity, values: dict[str, float], message: str) -> None:
    quotas = Quotas()
    with refused(INVALID_REQUEST, message):
        quotas.decide(entity, values.items())
    if values and not math.isnan(next(iter(values.values()))):
        with pytest.raises(ValueError, match=message):
            quotas.check(QuotasChanged(entity, values))


def test_the_longest_name_and_the_largest_values_may_be_set() -> None:
    quotas = Quotas()
    put(quotas, ((USER, "é" * 512),), producer_byte_rate=2.0**62)
    put(quotas, ((IP, None),), connection_creation_rate=2**31 - 1)
    assert quotas.limit(PRODUCED, "é" * 512, "") == (("é" * 512, ""), 2.0**62)
    assert quotas.connections_per_second("10.0.0.7") == 2**31 - 1


def test_a_percentage_may_have_a_fraction() -> None:
    quotas = Quotas()
    put(quotas, (ALICE,), request_percentage=0.5)
    assert quotas.limit(BUSY, "alice", "") == (("alice", ""), 0.5)


@pytest.mark.parametrize("value", [(0.1 + 0.7) * 10, 8.0000001])
def test_a_value_that_is_whole_but_for_its_computation_may_be_a_quota(value: float) -> None:
    quotas = Quotas()
    put(quotas, (ALICE,), producer_byte_rate=value)
    assert quotas.limit(PRODUCED, "alice", "") == (("alice", ""), value)


def test_a_key_that_is_named_twice_is_refused() -> None:
    changes = [(PRODUCED, 1.0), (PRODUCED, None)]
    with refused(INVALID_REQUEST, "Duplicate quota key"):
        Quotas().decide((ALICE,), changes)


def test_nothing_is_written_where_nothing_changes() -> None:
    quotas = Quotas()
    assert quotas.decide((ALICE,), [(PRODUCED, None)]) is None
    put(quotas, (ALICE,), producer_byte_rate=5)
    assert quotas.decide((ALICE,), [(PRODUCED, 5.0)]) is None


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", EXACT, "x")], INVALID_REQUEST),
        ([(USER, EXACT, "x"), (USER, ANY, None)], INVALID_REQUEST),
        ([("group", EXACT, "x")], UNSUPPORTED_VERSION),
        ([(USER, EXACT, None)], INVALID_REQUEST),
        ([(USER, DEFAULT, "x")], INVALID_REQUEST),
        ([(USER, ANY, "x")], INVALID_REQUEST),
        ([(USER, 3, "x")], INVALID_REQUEST),
        ([(USER, EXACT, "x"), (IP, ANY, None)], INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(components: list[tuple[str, int, str | None]], error: int) -> None:
    with refused(error):
        match_of(components, is_strict=False)


@pytest.mark.parametrize(
    ("components", "is_strict", "places"),
    [
        ([], False, range(8)),
        ([], True, ()),
        ([(USER, EXACT, "alice")], False, (0, 1, 2)),
        ([(USER, EXACT, "alice")], True, (2,)),
        ([(USER, DEFAULT, None)], True, (5,)),
        ([(USER, ANY, None)], True, (2, 5)),
        ([(USER, ANY, None), (CLIENT_ID, DEFAULT, None)], True, (1, 4)),
        ([(CLIENT_ID, EXACT, "app")], False, (0, 3, 6)),
        ([(IP, ANY, None)], False, ()),
    ],
)
def test_a_filter_means_those_that_apache_kafka_would_show(
    components: list[tuple[str, int, str | None]], is_strict: bool, places: Any
) -> None:
    match = match_of(components, is_strict=is_strict)
    found = [entity for entity, _ in PRECEDENCE if match.matches(entity)]
    assert found == [PRECEDENCE[place][0] for place in places]


entities = st.sampled_from([entity for entity, _ in PRECEDENCE] + [((USER, "bob"),), ((CLIENT_ID, "x"), ALICE)])
values = st.dictionaries(st.sampled_from([PRODUCED, FETCHED, BUSY]), st.one_of(st.none(), st.integers(1, 9)))


class QuotasMachine(RuleBasedStateMachine):
    """Quotas beside a plain list of what is set; every entry goes through its bytes, and some of it is restored."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas = Quotas(entities_max=4)
        self.model: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}

    @rule(entity=entities, changes=values)
    def change(self, entity: Entity, changes: dict[str, float | None]) -> None:
        after = {**self.model.get(frozenset(entity), {}), **changes}
        kept = {key: value for key, value in after.items() if value is not None}
        if kept and len(self.model.keys() | {frozenset(entity)}) > 4:
            with refused(POLICY_VIOLATION):
                self.quotas.decide(entity, changes.items())
            return
        put(self.quotas, entity, **changes)
        self.model.pop(frozenset(entity), None)
        if kept:
            self.model[frozenset(entity)] = kept

    @rule()
    def restore(self) -> None:
        snapshot = read_again(self.quotas.snapshot())
        self.quotas = Quotas(entities_max=4)
        self.quotas.restore(snapshot)

    @invariant()
    def a_checkpoint_that_is_written_now_has_all_of_it(self) -> None:
        written = Quotas()
        written.restore(read_again(self.quotas.snapshot()))
        assert {frozenset(entity): written.of(entity) for entity in written} == self.model

    @invariant()
    def all_of_it_is_there(self) -> None:
        assert {frozenset(entity): self.quotas.of(entity) for entity in self.quotas} == self.model
        assert set(self.quotas.keys) == {key for kept in self.model.values() for key in kept}

    @invariant()
    def the_first_that_is_set_counts(self) -> None:
        for user, client_id in (("alice", "app"), ("alice", "x"), ("bob", "app"), ("carol", "")):
            for key in (PRODUCED, FETCHED, BUSY):
                names = [(u, c) for u in (user, None) for c in (client_id, None, ...)] + [(..., client_id), (..., None)]
                wanted = [
                    frozenset({(USER, u) for u in [u] if u is not ...} | {(CLIENT_ID, c) for c in [c] if c is not ...})
                    for u, c in names
                ]
                first = next((self.model[one][key] for one in wanted if key in self.model.get(one, {})), None)
                limit = self.quotas.limit(key, user, client_id)
                assert first == (None if limit is None else limit.per_second)


TestQuotas = QuotasMachine.TestCase
TestQuotas.settings = settings(max_examples=30, stateful_step_count=20)
