"""The planted bugs of limits that multiply: an index that is a walk again, and a bound on a product that is gone."""

from typing import Final

from saboteurs.planting import Bug

PRODUCT_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "each open transaction of a group is looked through for each partition",
        "semel.log.core.groups.offsets:GroupOffsets.count_at",
        "len(self._pending_in.producers(name.number, name.partition))",
        "sum(table.get(name) is not None for table in self.pending.values())",
        ("tests/log/broker/test_products.py",),
    ),
    Bug(
        "one transaction ends in any number of offsets",
        "semel.log.core.groups.groups:Groups.check_offsets",
        "count + more > self._transaction_offsets_max",
        "False",
        ("tests/log/broker/test_products.py",),
    ),
    Bug(
        "all fetches that wait for a partition are told in one turn",
        "semel.log.broker.broker:Broker._wire",
        "self.log.note_moved = self.wakeups.note_moved",
        "pass",
        ("tests/log/broker/test_products.py",),
    ),
    Bug(
        "all partitions of a new topic are made at once",
        "semel.log.core.state:Partitions.note_size",
        "of_topic.grow(topic.partition_count, self._catalog.lenient_blocks(topic.name))",
        "(of_topic.grow(topic.partition_count, self._catalog.lenient_blocks(topic.name)), list(of_topic.all()))",
        ("tests/log/broker/test_products.py",),
    ),
    Bug(
        "all members of a classic group are answered in one turn",
        "semel.log.broker.classic_groups:ClassicGroupCoordinator._carry_out",
        "runtime.turns.begin(_send(answers), runtime.note_end)",
        "finish(_send(answers))",
        ("tests/log/broker/test_large_groups.py",),
    ),
    Bug(
        "a large consumer group is assigned at once",
        "semel.log.core.groups.consumer_topics:is_large",
        "max(len(topics) * len(topics_wanted), partition_count) > ASSIGNED_AT_ONCE",
        "False",
        ("tests/log/broker/test_large_groups.py",),
    ),
    Bug(
        "a member that left during an assignment is given partitions",
        "semel.log.core.groups.consumer_assignment:decide_targets",
        "member_id in group.members and to != group.target_of(member_id)",
        "to != group.target_of(member_id)",
        ("tests/log/broker/test_large_groups.py",),
    ),
    Bug(
        "a partition begins small segments however many it has",
        "semel.log.storage.partition_log:PartitionLog._segment_for",
        "len(self._segments) >= SEGMENTS_MAX",
        "False",
        ("tests/log/broker/test_products.py",),
    ),
)
