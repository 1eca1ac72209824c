"""The declaration at the top of each file in `apis/`: everything in which one API differs from another, besides its
handler. The answer of ApiVersions, what a standby does and forwards, who may ask before a login, the reference page and
the tests of every API are derived from it. Nothing here may know a particular API.
"""

from enum import Enum

from semel.log.broker.rights import Right
from semel.wire.errors import ErrorCode
from semel.wire.versions import NAMES, VersionRange


class Here(Enum):
    """What a standby does with a request that it does not forward.

    An active broker without a lease serves what needs no proof that it is active, and refuses everything else.
    """

    SERVES = "answers as the active broker would, with the active broker's address"
    READS = "answers what it has read from the journal, a moment late"
    LISTS_NOTHING = "answers with an empty list, because a client puts the lists of all brokers together"
    NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
    NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
    NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
    HANGS_UP = "closes the connection, because a client would ask the same broker again after any error"


class Api:
    """One API of the protocol, as this broker serves it."""

    def __init__(
        self,
        key: int,
        versions: tuple[int, int],
        *,
        rights: tuple[Right, ...],
        standby: Here,
        forwards: bool = False,
        asks_who: bool = False,
        before_login: bool = False,
        is_heartbeat: bool = False,
        may_be_large: bool = False,
        served_from: int = 0,
        takes_any_version: bool = False,
    ) -> None:
        self.key = key
        self.name = NAMES[key]
        # The first and the last that ApiVersions announces. None may be unstable in Apache Kafka.
        self.versions = VersionRange(*versions)
        # Those that are served: clients judge by some old versions what a broker can do, and never send them.
        self.served = range(max(served_from, self.versions.min), self.versions.max + 1)
        # Whether the handler answers the versions that it does not know, too.
        self.takes_any_version = takes_any_version
        # What the handler asks the guard for. A client that lacks all of them is told that it lacks the first.
        self.rights = rights
        # What a standby does with a request by itself.
        self.standby = standby
        # Whether a standby forwards it to the active broker, where nobody has to log in: as one who has not logged in.
        self.forwards = forwards
        # Whether it asks which broker is active. A broker that hands over answers it when the next one is.
        self.asks_who = asks_who
        # Whether a client may send it before it has logged in.
        self.before_login = before_login
        # Whether it is one of very many whose answer promises nothing unless it has an error.
        self.is_heartbeat = is_heartbeat
        # Whether its requests have records, and so may be larger than those of all others.
        self.may_be_large = may_be_large

    def takes(self, version: int) -> bool:
        """Whether the handler takes requests of this version."""
        return self.takes_any_version or version in self.served
