"""The planted bugs of limits that multiply: an index that is a walk again, and a bound on a product that is gone."""

from typing import Final

from saboteurs.planting import Bug

PRODUCT_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "each open transaction of a group is looked through for each partition",
        "semel.core.groups.offsets:GroupOffsets.count_at",
        "len(self._pending_in.producers(name.number, name.partition))",
        "sum(table.get(name) is not None for table in self.pending.values())",
        ("tests/broker/test_products.py",),
    ),
    Bug(
        "one transaction ends in any number of offsets",
        "semel.core.groups.groups:Groups.check_offsets",
        "count + more > self._transaction_offsets_max",
        "False",
        ("tests/broker/test_products.py",),
    ),
    Bug(
        "all fetches that wait for a partition are told in one turn",
        "semel.broker.broker:Broker._wire",
        "self.log.note_moved = self.wakeups.note_moved",
        "pass",
        ("tests/broker/test_products.py",),
    ),
)
