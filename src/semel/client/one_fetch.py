"""One fetch from one partition, for those who look at a log without following it.

It makes one attempt, and never waits for records that do not exist yet.
"""

from typing import Final

from semel.client.cluster import Cluster
from semel.client.places import Isolation, Topic, TopicPartition
from semel.wire import fetch_client
from semel.wire.fetch import FetchPartitionAnswer

FETCH_BYTES: Final = 1024 * 1024


def fetched(
    cluster: Cluster,
    topic: Topic,
    where: TopicPartition,
    at: int,
    isolation: Isolation,
    bytes_max: int = FETCH_BYTES,
) -> FetchPartitionAnswer:
    """The answer to one fetch; it has one whole batch at least, if there is one."""
    leader = cluster.leader_of(where, topic.id)
    connection = cluster.lease(leader)
    try:
        version = connection.fetch_version if topic.id.int else min(connection.fetch_version, fetch_client.NAMED_LAST)
        connection.send_fetch(
            version,
            fetch_client.PartitionFetch(
                topic.name, topic.id.bytes, where.partition, at, isolation, 0, 1, bytes_max, bytes_max
            ),
        )
        answer = connection.receive_fetch(version)
    except BaseException:
        connection.close()
        raise
    cluster.give_back(leader, connection)
    return answer
