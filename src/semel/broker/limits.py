"""Every bound the broker has, with its default and the reason for it. Nothing a client sends may grow without one."""

from dataclasses import dataclass
from typing import Final

# There is one broker, and this is its number.
NODE_ID: Final = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Named limits; `semel serve --limit NAME=VALUE` sets any of them."""

    # Connections cost a socket and a receive buffer each; one process on one machine serves this many with ease.
    connections_max: int = 2_000
    # The largest request, which is one that carries records. As in Apache Kafka (socket.request.max.bytes), so that
    # every client's settings fit.
    frame_bytes_max: int = 100 * 1024 * 1024
    # The largest request that carries none: ten thousand partitions in one take about half a megabyte.
    small_request_bytes_max: int = 4 * 1024 * 1024
    # Receive buffers of all connections together; beyond it large requests are read one at a time.
    receive_bytes_max: int = 256 * 1024 * 1024
    # Requests of one connection that may be under way at once; the next one waits unread. Clients keep 5 or so.
    requests_in_flight_max: int = 128
    # One fetch answer. Clients ask for 50 MB and are content with less.
    fetch_answer_bytes_max: int = 8 * 1024 * 1024
    # Answers that were given but not taken yet, of all connections; beyond it fetches get one batch at a time.
    unsent_bytes_max: int = 256 * 1024 * 1024
    # Partitions in fetches that wait for records; beyond it a fetch is answered at once with what there is.
    waiting_partitions_max: int = 1_000_000
    # How long a fetch may wait for records, whatever it asks for.
    fetch_wait_ms_max: int = 60_000
    # Sessions of incremental fetches; consumers beyond these do without, as the protocol allows.
    fetch_sessions_max: int = 1_000
    # Partitions in all of those sessions together.
    fetch_session_partitions_max: int = 200_000
    # Of a request that has begun, and of an answer, the rest or another 64 KB has to come or go within this time.
    stalled_connection_ms_max: int = 60_000
    # A connection on which nothing happens is closed after this time, as in Apache Kafka.
    idle_connection_ms_max: int = 600_000
    # Topics that exist at once; each stands in every checkpoint.
    topics_max: int = 10_000
    # Partitions of all topics together.
    partitions_max: int = 20_000
    # Pairs of producer id and partition on record; all of them are 140 MB in a checkpoint and 300 MB in memory.
    producer_states_max: int = 1_000_000
    # Consumer groups that exist at once; each stands in every checkpoint.
    groups_max: int = 10_000
    # Offsets of all groups together, those of open transactions included: 250 bytes each in memory.
    group_offsets_max: int = 1_000_000
