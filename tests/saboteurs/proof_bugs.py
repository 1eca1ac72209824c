"""The planted bugs of the proofs that no other broker has taken over, without which some answers must not leave."""

from typing import Final

from saboteurs.planting import Bug

_PROOFS: Final = "tests/log/replica/test_proofs.py"

PROOF_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "an answer does not wait for the proof that no other broker has taken over",
        "semel.log.broker.connection:Connection.send_answers",
        "exchange.proof > pump.proved",
        "False",
        (f"{_PROOFS}::test_a_broker_that_was_replaced_answers_nothing_that_may_have_changed",),
    ),
    Bug(
        "a broker that finds a slot which it has not sent takes it for its own",
        "semel.log.replica.writer:SlotWriter._prove",
        "self._history.next_slot == slot",
        "False",
        (f"{_PROOFS}::test_who_finds_another_brokers_fence_is_fenced",),
    ),
    Bug(
        "a proof does not wait for the slots under way",
        "semel.log.replica.writer:SlotWriter._prove",
        "next(iter(self._under_way), slot) < slot",
        "False",
        (f"{_PROOFS}::test_a_proof_waits_for_the_slots_under_way",),
    ),
    Bug(
        "refusals of batches are not proved",
        "semel.log.broker.apis.produce:handle",
        "is_to_be_proved=is_refused",
        "is_to_be_proved=False",
        (f"{_PROOFS}::test_a_broker_that_was_replaced_answers_nothing_that_may_have_changed",),
    ),
    Bug(
        "an offset out of range is not proved",
        "semel.log.broker.apis.fetch:_answer",
        "is_to_be_proved=harvest.has_error",
        "is_to_be_proved=False",
        (f"{_PROOFS}::test_a_broker_that_was_replaced_answers_nothing_that_may_have_changed",),
    ),
)
