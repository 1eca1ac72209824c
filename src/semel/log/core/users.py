"""The users who may log in, and their credentials for each SASL mechanism. Passwords themselves are not stored.

A credential has the keys of SCRAM (RFC 5802), derived from the password with a salt and many iterations. For a user who
does not exist, `credential_for` derives a salt and keys from a secret, always the same for the same name: so a client
that tries a name repeatedly cannot tell whether the user exists. This file must never store a password, and never make
a random number.
"""

import hmac
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from semel.log.core.cached_part import CachedPart
from semel.log.core.entries import LoginSecretMade, UserCredentialRemoved, UserCredentialSet
from semel.wire.refusals import (
    POLICY_VIOLATION,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
    UNSUPPORTED_SASL_MECHANISM,
    Refused,
)
from semel.wire.scram import SALT_BYTES, Credential, Mechanism

# A user takes half a kilobyte, and every checkpoint contains all users.
USERS_MAX: Final = 10_000
# As in Apache Kafka: with fewer iterations a password is guessed too quickly, and with more a login costs a client too
# much.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
# Limits on a user's name, in UTF-8, so that an access rule can contain `User:` and the name; and on a salt.
NAME_BYTES_MAX: Final = 1_000
SALT_BYTES_MAX: Final = 1_024
SECRET_BYTES: Final = 32


class Users:
    """Every user, with one credential for each mechanism."""

    def __init__(self, users_max: int = USERS_MAX) -> None:
        self._users_max = users_max
        # The credentials of a user are replaced and never changed, so that a snapshot can contain them.
        self._credentials: dict[str, dict[Mechanism, Credential]] = {}
        # How many credentials have each mechanism and number of iterations. An unknown user gets the most frequent
        # ones.
        self._kinds: Counter[tuple[Mechanism, int]] = Counter()
        self.secret = b""
        self._part: CachedPart | None = None

    def __len__(self) -> int:
        return len(self._credentials)

    def __iter__(self) -> Iterator[str]:
        return iter(self._credentials)

    def credentials(self, user: str) -> Mapping[Mechanism, Credential]:
        """This user's credentials; empty if there is no such user."""
        return self._credentials.get(user, {})

    def credential_for(self, user: str, mechanism: Mechanism) -> Credential:
        """This user's credential; for an unknown user one that no password matches."""
        credential = self.credentials(user).get(mechanism)
        if credential is not None:
            return credential
        counts = {iterations: count for (one, iterations), count in self._kinds.items() if one is mechanism}
        iterations = max(counts, key=counts.__getitem__, default=ITERATIONS_MIN)
        name = f"{mechanism.sasl_name} {user}".encode()
        salt, stored_key, server_key = (
            hmac.digest(self.secret, what + name, "sha512") for what in (b"salt ", b"stored ", b"server ")
        )
        length = mechanism.key_bytes
        return Credential(salt[:SALT_BYTES], stored_key[:length], server_key[:length], iterations)

    def is_current(self, user: str, mechanism: Mechanism, credential: Credential) -> bool:
        """Whether this is the user's credential now. A login takes more than one step, and the user may be removed or
        get another password between two of them.
        """
        return self.credentials(user).get(mechanism) == credential

    def mechanism_of(self, user: str) -> Mechanism:
        """The mechanism whose keys are to check this user's password, whether the user exists or not."""
        credentials = self.credentials(user)
        kinds = max(self._kinds, key=self._kinds.__getitem__, default=(Mechanism.SCRAM_SHA_512, 0))
        return kinds[0] if not credentials or kinds[0] in credentials else next(iter(credentials))

    # -- deciding -----------------------------------------------------------------------------------------------

    def decide_set(self, user: str, mechanism: int, credential: Credential) -> UserCredentialSet:
        """The entry that stores a user's credential; Refused if the credential is not valid."""
        checked_mechanism = check_mechanism(user, mechanism)
        if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
            few = "few" if credential.iterations < ITERATIONS_MIN else "many"
            raise Refused(UNACCEPTABLE_CREDENTIAL, f"Too {few} iterations")
        if not 0 < len(credential.salt) <= SALT_BYTES_MAX:
            raise Refused(UNACCEPTABLE_CREDENTIAL, f"a salt has 1 to {SALT_BYTES_MAX} bytes")
        if {len(credential.stored_key), len(credential.server_key)} != {checked_mechanism.key_bytes}:
            raise Refused(
                UNACCEPTABLE_CREDENTIAL,
                f"keys of {checked_mechanism.sasl_name} have {checked_mechanism.key_bytes} bytes",
            )
        if user not in self._credentials and len(self._credentials) >= self._users_max:
            raise Refused(POLICY_VIOLATION, f"{self._users_max} users are on record, no more are allowed")
        return UserCredentialSet(user, checked_mechanism, *credential)

    def decide_remove(self, user: str, mechanism: int) -> UserCredentialRemoved:
        """The entry that removes a user's credential for this mechanism."""
        checked_mechanism = check_mechanism(user, mechanism)
        if checked_mechanism not in self.credentials(user):
            raise Refused(RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return UserCredentialRemoved(user, checked_mechanism)

    # -- entries ------------------------------------------------------------------------------------------------

    def check(self, entry: UserCredentialSet | UserCredentialRemoved | LoginSecretMade) -> None:
        """ValueError for an entry that cannot follow those before it."""
        if isinstance(entry, LoginSecretMade):
            if len(entry.secret) != SECRET_BYTES:
                raise ValueError(f"the secret of logins has {len(entry.secret)} bytes, and not {SECRET_BYTES}")
            return
        mechanism = Mechanism(entry.mechanism)
        if isinstance(entry, UserCredentialRemoved) and mechanism not in self.credentials(entry.user):
            raise ValueError(f"user {entry.user!r} has no credential for {mechanism.sasl_name}")

    def apply(self, entry: UserCredentialSet | UserCredentialRemoved | LoginSecretMade) -> None:
        self._part = None
        if isinstance(entry, LoginSecretMade):
            self.secret = entry.secret
            return
        mechanism = Mechanism(entry.mechanism)
        credentials = dict(self.credentials(entry.user))
        former = credentials.pop(mechanism, None)
        if former is not None:
            self._kinds -= Counter([(mechanism, former.iterations)])
        if isinstance(entry, UserCredentialSet):
            self._kinds[mechanism, entry.iterations] += 1
            credentials[mechanism] = Credential(entry.salt, entry.stored_key, entry.server_key, entry.iterations)
        if credentials:
            self._credentials[entry.user] = credentials
        else:
            del self._credentials[entry.user]

    def snapshot(self) -> CachedPart:
        if self._part is None:
            secret, users = self.secret, list(self._credentials.items())
            self._part = CachedPart(lambda: {"secret": secret.hex(), "credentials": _rows(users)})
        return self._part

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Load the state in `snapshot`."""
        self.secret = bytes.fromhex(snapshot["secret"])
        for user, mechanism, salt, stored_key, server_key, iterations in snapshot["credentials"]:
            salt, stored_key, server_key = map(bytes.fromhex, (salt, stored_key, server_key))
            self.apply(UserCredentialSet(user, mechanism, salt, stored_key, server_key, iterations))


def _rows(users: Iterable[tuple[str, Mapping[Mechanism, Credential]]]) -> list[Any]:
    """All credentials, as values that JSON can hold."""
    return [
        [user, mechanism.value, *(key.hex() for key in credential[:3]), credential.iterations]
        for user, credentials in users
        for mechanism, credential in credentials.items()
    ]


def check_mechanism(user: str, mechanism: int) -> Mechanism:
    """The mechanism with this number; Refused for an unknown one or a bad user name, in Apache Kafka's words."""
    if not user:
        raise Refused(UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(user.encode()) > NAME_BYTES_MAX:
        raise Refused(UNACCEPTABLE_CREDENTIAL, f"a user's name has at most {NAME_BYTES_MAX} bytes")
    if mechanism not in set(Mechanism):
        raise Refused(UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return Mechanism(mechanism)
