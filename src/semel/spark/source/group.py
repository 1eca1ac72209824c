"""Commits a query's offsets to a consumer group, so that tools can display its lag. This is an option.

The query never reads these offsets: Spark's checkpoint says where it continues. So a failed commit must never stop a
query. And this file must never overwrite the offsets of another client: an application that is down would lose its
position.
"""

import logging
from collections.abc import Mapping
from typing import Final

from semel.client import LogClient, groups
from semel.client.cluster import GROUP
from semel.client.errors import LogError
from semel.client.groups import QUERY_NOTE
from semel.client.patience import Patience
from semel.client.places import TopicPartition
from semel.client.settings import ClientSettings

_LOG: Final = logging.getLogger(__name__)
_SHOW_MS_MAX: Final = 30_000


class GroupOffsets:
    """The offsets of the group in `kafka.group.id`, if that option is set; the group has no members."""

    def __init__(self, settings: ClientSettings) -> None:
        self._client = LogClient(settings)
        self._group = settings.group_id
        self._shown: Mapping[TopicPartition, int] = {}

    def show(self, reached: Mapping[TopicPartition, int]) -> None:
        """Commits these offsets for the group if they have changed. After a failure it commits no more."""
        if self._group is None or reached == self._shown or not reached:
            return
        group = self._group
        patience = Patience(self._client.settings, _SHOW_MS_MAX, "the time to show it")
        try:
            self._client.patiently(lambda: self._commit(group, reached), patience)
        except LogError as error:
            self._group = None
            _LOG.warning("group %s does not show how far the query is: %s", group, error)

    def _commit(self, group: str, reached: Mapping[TopicPartition, int]) -> None:
        cluster = self._client.cluster
        coordinator = cluster.coordinator(group, GROUP)
        if not self._shown:
            committed = groups.committed(cluster, coordinator, group)
            others = [where for where in reached if where in committed and committed[where].note != QUERY_NOTE]
            if others:
                self._group = None
                _LOG.warning(
                    "group %s has offsets of %s that no query of semel's has committed, and they stay: name a group "
                    "of this query alone in kafka.group.id, or delete this one (semel groups delete %s)",
                    *(group, others[0].topic, group),
                )
                return
        groups.commit(cluster, coordinator, group, reached, QUERY_NOTE)
        self._shown = dict(reached)

    def close(self) -> None:
        self._client.close()
