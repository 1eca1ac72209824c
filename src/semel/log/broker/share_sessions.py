"""Sessions of share consumers: the broker remembers in which partitions a member of a share group looks for records.

A member has one session, which is named by its group and its id and belongs to the principal that began it. Its first
request lists all partitions, with epoch 0; later requests, which may also be acknowledgements, have the next epoch and
list only changes. The session ends with epoch -1, with its connection, or when the member begins another one; then
whatever the member still holds is released. Their number and that of their partitions is bounded, nobody's session
gives way to another's, and the addresses of clients share the space, as they share that for producers.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from semel.log.core.access import Principal
from semel.log.core.shares import is_within_share
from semel.wire.errors import ErrorCode
from semel.wire.refusals import INVALID_REQUEST, Refused

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_LAST: Final = 2**31 - 1
# As in Apache Kafka.
MEMBER_ID_CHARACTERS_MAX: Final = 36

# The id of a topic, and the index of a partition.
Place = tuple[bytes, int]


class SharerName(NamedTuple):
    """A member of a share group."""

    group: str
    member_id: str


def check_member_id(member_id: str | None) -> str:
    """A member's id, which is a UUID in some form; Refused if it is missing or too long."""
    if not member_id or len(member_id) > MEMBER_ID_CHARACTERS_MAX:
        raise Refused(INVALID_REQUEST, f"a member's id has 1 to {MEMBER_ID_CHARACTERS_MAX} characters")
    return member_id


class ShareSession:
    """The partitions of one member, in the order in which it named them. It is what holds the records that the member
    acquires, so that a later session of the same member does not lose its own with those of this one.
    """

    __slots__ = ("address", "connection_number", "epoch", "is_over", "name", "owner", "places")

    def __init__(self, name: SharerName, owner: Principal, connection_number: int, address: str) -> None:
        self.name = name
        self.owner = owner
        self.connection_number = connection_number
        self.address = address
        self.is_over = False
        self.epoch = 1
        self.places: dict[Place, None] = {}

    def in_turn(self, epoch: int) -> list[Place]:
        """The partitions, beginning with another one in each request, so that none has to wait for ever."""
        places = list(self.places)
        at = epoch % len(places) if places and epoch > 0 else 0
        return places[at:] + places[:at]


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self, sessions_max: int, partitions_max: int) -> None:
        """`partitions_max` is for all sessions together, to bound their memory."""
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[SharerName, ShareSession] = {}
        self._of_connection: dict[int, dict[SharerName, None]] = {}
        self._partition_count = 0
        # Sessions and their partitions by address.
        self._sessions_of = Counter[str]()
        self._partitions_of = Counter[str]()

    def __len__(self) -> int:
        return len(self._sessions)

    def check_owner(self, name: SharerName, owner: Principal) -> None:
        """Refused if the member has a session of another principal."""
        session = self._sessions.get(name)
        if session is not None and session.owner != owner:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session belongs to another principal")

    def begin(self, name: SharerName, owner: Principal, connection_number: int, address: str) -> ShareSession:
        """A new session without partitions, for a member that has none; Refused if its address gets no more."""
        self._check_space(1, self._sessions_max, len(self._sessions), self._sessions_of[address], "share sessions")
        session = self._sessions[name] = ShareSession(name, owner, connection_number, address)
        self._of_connection.setdefault(connection_number, {})[name] = None
        self._sessions_of[address] += 1
        return session

    def next(self, name: SharerName, owner: Principal, epoch: int) -> ShareSession:
        """The session of a later request, which has this epoch; Refused if it is not the one that is due."""
        self.check_owner(name, owner)
        session = self._sessions.get(name)
        if session is None:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, f"'{name.member_id}' has no share session")
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"epoch {session.epoch} is due, not {epoch}")
        if epoch != FINAL_EPOCH:
            session.epoch = session.epoch + 1 if session.epoch < EPOCH_LAST else 1
        return session

    def add(self, session: ShareSession, places: Iterable[Place]) -> None:
        """Add partitions to a session; Refused, without adding any, if there is no space for this address."""
        if session.is_over:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session has ended")
        new = dict.fromkeys(place for place in places if place not in session.places)
        taken = self._partitions_of[session.address]
        self._check_space(
            len(new), self._partitions_max, self._partition_count, taken, "partitions in all share sessions"
        )
        session.places.update(new)
        self._note_count(session.address, len(new))

    def forget(self, session: ShareSession, places: Iterable[Place]) -> None:
        """Take partitions from a session."""
        before = len(session.places)
        for place in places:
            session.places.pop(place, None)
        self._note_count(session.address, len(session.places) - before)

    def _check_space(self, count: int, limit: int, in_use: int, taken: int, things: str) -> None:
        if count and not is_within_share(count, limit, in_use, taken):
            raise Refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {in_use} {things}, and {taken} of this address"
            )

    def _note_count(self, address: str, more: int) -> None:
        self._partition_count += more
        self._partitions_of[address] += more
        if not self._partitions_of[address]:
            del self._partitions_of[address]

    def end(self, session: ShareSession) -> None:
        """Forget a session."""
        session.is_over = True
        del self._sessions[session.name]
        self._note_count(session.address, -len(session.places))
        self._sessions_of[session.address] -= 1
        if not self._sessions_of[session.address]:
            del self._sessions_of[session.address]
        of_connection = self._of_connection[session.connection_number]
        del of_connection[session.name]
        if not of_connection:
            del self._of_connection[session.connection_number]

    def of(self, name: SharerName) -> ShareSession | None:
        """The session of a member."""
        return self._sessions.get(name)

    def of_connection(self, connection_number: int) -> list[ShareSession]:
        """The sessions that this connection has."""
        return [self._sessions[name] for name in self._of_connection.get(connection_number, ())]
