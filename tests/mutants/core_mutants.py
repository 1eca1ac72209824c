"""Mutants of the rules that were chosen without a look at the tests, and that no test noticed then."""

from typing import Final

from saboteurs.planting import Bug

CORE_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- transactions and producer ids --------------------------------------------------------------------------------
    Bug(
        "a transaction does not begin before it is known where it writes",
        "semel.log.core.transaction_rules:TransactionRules.decide_add_partitions",
        "transaction is not None and not new",
        "not new",
        ("tests/log/core/test_transactions.py",),
    ),
    Bug(
        "an id that is forgotten stays in doubt for ever",
        "semel.log.core.transactions:Transactions.apply",
        "self._doubted.discard(producer_id)",
        "pass",
        ("tests/log/core/test_transactions_ending.py",),
    ),
    Bug(
        "the last block of a range is never given out",
        "semel.log.core.producer_ids:ProducerIds._first_of_next_block",
        "first + BLOCK_IDS <= (number + 1) * RANGE_IDS",
        "first + BLOCK_IDS < (number + 1) * RANGE_IDS",
        ("tests/log/core/test_producer_ids.py",),
    ),
    Bug(
        "a range that is forgotten takes its owner's newer one along",
        "semel.log.core.producer_ids:ProducerIds._forget_range",
        "self._numbers[owner] == number",
        "True",
        ("tests/log/core/test_producer_ids.py",),
    ),
    Bug(
        "a marker of an earlier epoch takes the epoch back",
        "semel.wire.sequences:note_marker",
        "epoch > epoch_of(state)",
        "epoch != epoch_of(state)",
        ("tests/wire/test_sequences.py",),
    ),
)
