"""Asks a broker of semel for the deduplication windows of its producers, and for what share groups have in flight.

The broker answers at the address of its metrics and decisions. If it does not answer, the page shows why.
"""

import json
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from semel.client.places import TopicPartition
from semel.ui.console.http import reason_of
from semel.wire.basic import BasicLogin
from semel.wire.hosts import shown_address

ANSWER_SECONDS_MAX: Final = 3.0
ANSWER_BYTES_MAX: Final = 1024 * 1024

# By partition and producer id.
Windows = Mapping[tuple[int, int], list[dict[str, int]]]


class InFlight(NamedTuple):
    """What a share group has in flight in a partition."""

    # How many records somebody holds, and how many wait to be delivered again.
    held: int
    waiting: int
    # Of both: how many were delivered how often; and how many each member holds.
    deliveries: list[tuple[int, int]]
    holders: list[tuple[str, int]]


class NotTold(Exception):
    """The broker did not answer; the message says why."""


class BrokerDoor(NamedTuple):
    """The address of a broker's metrics, and the console's login there."""

    host: str
    port: int
    # None if the broker asks for no login.
    login: BasicLogin | None = None
    # None without TLS.
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        """Without the password."""
        return f"BrokerDoor({self.place})"

    @property
    def place(self) -> str:
        return shown_address(self.host, self.port)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        host = {"Host": self.place}
        return host if self.login is None else {**host, "Authorization": self.login.header}

    def windows(self, topic: str, first_partition: int) -> Windows:
        """The batches that the partitions from `first_partition` on would recognise as duplicates, oldest first. Raises
        NotTold.
        """
        answer = self._get("/producers?" + urlencode({"topic": topic, "first": first_partition}))
        try:
            return {(int(one["partition"]), int(one["producer_id"])): _batches(one) for one in answer["windows"]}
        except (LookupError, TypeError, ValueError):
            raise NotTold("the broker tells windows in words that this console does not know") from None

    def shares(self, group: str, partitions_max: int) -> dict[TopicPartition, InFlight]:
        """What a share group has in flight, in so many partitions at most. Raises NotTold."""
        found: dict[TopicPartition, InFlight] = {}
        first: int | None = 0
        try:
            while first is not None and len(found) < partitions_max:
                answer = self._get("/shares?" + urlencode({"group": group, "first": first}))
                for one in answer["partitions"]:
                    where = TopicPartition(str(one["topic"]), int(one["partition"]))
                    deliveries = [(int(times), int(count)) for times, count in one["deliveries"]]
                    holders = [(str(member), int(count)) for member, count in one["holders"]]
                    found[where] = InFlight(int(one["held"]), int(one["waiting"]), deliveries, holders)
                later = answer["next"]
                first = None if later is None or int(later) <= first else int(later)
        except (LookupError, TypeError, ValueError):
            raise NotTold("the broker tells of share groups in words that this console does not know") from None
        return found

    def _get(self, target: str) -> Any:
        # Imported only here: it imports modules for mail headers, which a console does not need at its start.
        import http.client

        place = self.place
        connection: http.client.HTTPConnection
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_SECONDS_MAX)
        if self.tls is not None:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=ANSWER_SECONDS_MAX, context=self.tls)
        try:
            connection.request("GET", target, headers=self.headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX)
            if answer.status != 200:
                raise NotTold(f"{place} answers {answer.status}: {body[:200].decode(errors='replace').strip()}")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise NotTold(f"{place} does not tell it: {reason_of(error)}") from None
        finally:
            connection.close()


def _batches(one: Any) -> list[dict[str, int]]:
    return [
        {name: int(batch[name]) for name in ("first_sequence", "last_sequence", "records", "offset")}
        for batch in one["batches"]
    ]
