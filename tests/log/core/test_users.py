"""Users hold what proves a password, against a naive model; what cannot be kept is refused in Kafka's words."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from administration import read_again
from semel.log.core.entries import LoginSecretMade, UserCredentialRemoved, UserCredentialSet
from semel.log.core.users import ITERATIONS_MAX, ITERATIONS_MIN, Users
from semel.log.storage.encoding import decode, encode
from semel.wire.refusals import POLICY_VIOLATION, RESOURCE_NOT_FOUND, Refused
from semel.wire.scram import Credential, Mechanism

mechanisms = st.sampled_from(Mechanism)
names = st.sampled_from(["alice", "bob", "carol, =\N{SNOWMAN}"])


def credential(mechanism: Mechanism, byte: int, iterations: int = ITERATIONS_MIN) -> Credential:
    return Credential(bytes([byte]), bytes([byte]) * mechanism.key_bytes, bytes(mechanism.key_bytes), iterations)


class UsersMachine(RuleBasedStateMachine):
    """Users beside a plain dictionary; every entry goes through its bytes, and every so often all is restored."""

    def __init__(self) -> None:
        super().__init__()
        self.users = Users(users_max=2)
        self.model: dict[tuple[str, Mechanism], Credential] = {}

    def take(self, entry: Any) -> None:
        kind, parts = encode(entry)
        read = decode(kind, memoryview(b"".join(map(bytes, parts))))
        assert read == entry
        self.users.check(read)
        self.users.apply(read)

    @rule(user=names, mechanism=mechanisms, byte=st.integers(0, 255), iterations=st.integers(ITERATIONS_MIN, 5_000))
    def set(self, user: str, mechanism: Mechanism, byte: int, iterations: int) -> None:
        others = {name for name, _ in self.model} - {user}
        held = credential(mechanism, byte, iterations)
        if len(others) == 2:
            with pytest.raises(Refused) as refused:
                self.users.decide_set(user, mechanism, held)
            assert refused.value.error == POLICY_VIOLATION
            return
        self.take(self.users.decide_set(user, mechanism, held))
        self.model[user, mechanism] = held

    @rule(user=names, mechanism=mechanisms)
    def remove(self, user: str, mechanism: Mechanism) -> None:
        if (user, mechanism) not in self.model:
            with pytest.raises(Refused) as refused:
                self.users.decide_remove(user, mechanism)
            assert refused.value.error == RESOURCE_NOT_FOUND
            with pytest.raises(ValueError, match="no credential"):
                self.users.check(UserCredentialRemoved(user, mechanism))
            return
        self.take(self.users.decide_remove(user, mechanism))
        del self.model[user, mechanism]

    @rule(byte=st.integers(0, 255))
    def make_secret(self, byte: int) -> None:
        self.take(LoginSecretMade(bytes([byte]) * 32))

    @rule()
    def restore(self) -> None:
        snapshot = read_again(self.users.snapshot())
        self.users = Users(users_max=2)
        self.users.restore(snapshot)

    @rule()
    def a_checkpoint_that_is_written_now_has_all_of_it(self) -> None:
        written = Users()
        written.restore(read_again(self.users.snapshot()))
        credentials = {(user, kind): held for user in written for kind, held in written.credentials(user).items()}
        assert credentials == self.model
        assert written.secret == self.users.secret

    @invariant()
    def is_as_the_model_says(self) -> None:
        assert set(self.users) == {user for user, _ in self.model}
        for user in ("alice", "bob", "carol, =\N{SNOWMAN}"):
            for mechanism in Mechanism:
                found = self.users.credential_for(user, mechanism)
                held = self.model.get((user, mechanism))
                assert self.users.is_current(user, mechanism, found) == (held is not None)
                if held is None:
                    assert len(found.stored_key) == mechanism.key_bytes
                    kinds = {one.iterations for (_, kind), one in self.model.items() if kind is mechanism}
                    assert found.iterations in (kinds or {ITERATIONS_MIN})
                    assert found == self.users.credential_for(user, mechanism)
                else:
                    assert found == held


TestUsers = UsersMachine.TestCase


@pytest.mark.parametrize(
    ("user", "mechanism", "changes", "told"),
    [
        ("", 1, {}, "Username must not be empty"),
        ("a" * 1001, 1, {}, "1000 bytes"),
        ("alice", 0, {}, "Unknown SCRAM mechanism"),
        ("alice", 1, {"iterations": ITERATIONS_MIN - 1}, "Too few iterations"),
        ("alice", 1, {"iterations": ITERATIONS_MAX + 1}, "Too many iterations"),
        ("alice", 1, {"salt": b""}, "a salt has"),
        ("alice", 1, {"stored_key": b"short"}, "have 32 bytes"),
    ],
)
def test_a_credential_that_cannot_be_kept_is_refused(
    user: str, mechanism: int, changes: dict[str, Any], told: str
) -> None:
    held = credential(Mechanism.SCRAM_SHA_256, 1)._replace(**changes)
    with pytest.raises(Refused, match=told):
        Users().decide_set(user, mechanism, held)


def test_the_smallest_and_the_largest_number_of_iterations_are_taken() -> None:
    for iterations in (ITERATIONS_MIN, ITERATIONS_MAX):
        held = credential(Mechanism.SCRAM_SHA_512, 1, iterations)
        assert isinstance(Users().decide_set("alice", Mechanism.SCRAM_SHA_512, held), UserCredentialSet)
