"""The lanes protocol holds in every interleaving of a small model, and each way to weaken it is found."""

import pytest
from model import Plan, Setting, Weakening, explore

HOLDS = {
    "one lane, four attempts, two crashes": Setting(),
    "two lanes, four attempts, one crash": Setting((Plan(lanes=2),), attempts_max=4, crashes_max=1),
    "lanes change from two to one": Setting((Plan(lanes=2), Plan(lanes=1)), attempts_max=4, crashes_max=1),
    "lanes change from one to two": Setting((Plan(lanes=1), Plan(lanes=2)), attempts_max=4, crashes_max=1),
    "a former leader hides the last batch": Setting(crashes_max=1, has_former_leader=True),
    "a batch is planned anew": Setting((Plan(), Plan(anew=True)), crashes_max=1),
    "the checkpoint is lost": Setting((Plan(), Plan(query="r")), crashes_max=1, loses_checkpoint=True),
}
# What a smaller world and the weakenings say as well, sooner.
LARGE = ("two lanes, four attempts, one crash", "lanes change from two to one")
# In which world each weakening shows.
WEAK = {
    Weakening.MARKER_READ_BEFORE_INIT: Setting(),
    Weakening.NO_MARKER: Setting(),
    Weakening.ID_PER_ATTEMPT: Setting(),
    Weakening.DIGEST_IGNORED: Setting((Plan(), Plan(anew=True))),
    Weakening.LANES_NOT_PINNED: Setting((Plan(lanes=2), Plan(lanes=1)), attempts_max=4, crashes_max=1),
    Weakening.MARKER_APART: Setting(),
    Weakening.UNKNOWN_IS_DONE: Setting(),
    Weakening.CLAIM_NOT_READ_BELOW: Setting(has_former_leader=True),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in HOLDS]
)
def test_no_interleaving_loses_or_doubles_a_row(name: str) -> None:
    explored = explore(HOLDS[name])
    print(f"{name}: {explored.states} states, {explored.complete} complete, {explored.refused} refused")
    assert explored.counterexample is None
    assert explored.stuck == []
    assert explored.complete > 0
    # Where nothing was changed between attempts nobody is refused.
    assert (explored.refused > 0) == (len(HOLDS[name].plans) > 1)


@pytest.mark.parametrize("weakening", Weakening, ids=lambda weakening: weakening.name.lower())
def test_each_weakening_of_the_protocol_is_found(weakening: Weakening) -> None:
    explored = explore(WEAK[weakening]._replace(weakening=weakening))
    assert explored.counterexample is not None
    print(f"{weakening.value}: {explored.states} states", *explored.counterexample, sep="\n  ")
