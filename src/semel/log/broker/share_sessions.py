"""Sessions of share consumers: the broker remembers in which partitions a member of a share group looks for records.

A member has one session, which is named by its group and its id and belongs to the principal that began it. Its first
request lists all partitions, with epoch 0; later requests, which may also be acknowledgements, have the next epoch and
list only changes. The session ends with epoch -1, with its connection, or when the member begins another one; then
whatever the member still holds is released. Their number is bounded, and nobody's session gives way to another's.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from semel.log.core.access import Principal
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
    """The partitions of one member, in the order in which it named them."""

    __slots__ = ("connection_number", "epoch", "name", "owner", "places")

    def __init__(self, name: SharerName, owner: Principal, connection_number: int) -> None:
        self.name = name
        self.owner = owner
        self.connection_number = connection_number
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

    def __len__(self) -> int:
        return len(self._sessions)

    def check_owner(self, name: SharerName, owner: Principal) -> None:
        """Refused if the member has a session of another principal."""
        session = self._sessions.get(name)
        if session is not None and session.owner != owner:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session belongs to another principal")

    def begin(
        self, name: SharerName, owner: Principal, connection_number: int, places: Iterable[Place]
    ) -> ShareSession:
        """A new session with these partitions, for a member that has none; Refused if there is no space."""
        if len(self._sessions) >= self._sessions_max:
            raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {self._sessions_max} share sessions")
        session = self._sessions[name] = ShareSession(name, owner, connection_number)
        self._of_connection.setdefault(connection_number, {})[name] = None
        try:
            self.change(session, places, ())
        except Refused:
            self.end(name)
            raise
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

    def change(self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Add partitions to a session and take others from it; Refused if all sessions would have too many."""
        before = len(session.places)
        for place in added:
            session.places[place] = None
        for place in forgotten:
            session.places.pop(place, None)
        self._partition_count += len(session.places) - before
        if self._partition_count > self._partitions_max:
            raise Refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"share sessions have {self._partitions_max} partitions in all"
            )

    def end(self, name: SharerName) -> None:
        """Forget the session of a member."""
        session = self._sessions.pop(name, None)
        if session is not None:
            self._partition_count -= len(session.places)
            of_connection = self._of_connection[session.connection_number]
            del of_connection[name]
            if not of_connection:
                del self._of_connection[session.connection_number]

    def of_connection(self, connection_number: int) -> list[SharerName]:
        """Whose sessions this connection has."""
        return list(self._of_connection.get(connection_number, ()))
