"""Each kind of object with each kind of damage: a broker has everything, or stops with a line and changes nothing.

These are some of the cells; `make damaged-stores` tries all of them, and random damages besides.
"""

from collections.abc import Iterator
from random import Random

import pytest

from damaged_stores.scenes import Scene, scene
from damaged_stores.trial import DAMAGES, REFUSED, WHOLE, cells, kind_of, outcome

SCENES = (("young", "killed", "start"), ("young", "stopped", "standby"), ("old", "killed", "start"))


def some_cells(left: Scene, chance: Random) -> Iterator[tuple[str, str]]:
    """The newest object of each kind with each damage, and another one."""
    found = list(cells(left))
    for kind in sorted({kind_of(*item) for item in left.objects.items()}):
        for damage in DAMAGES:
            keys = [key for key, name in found if name == damage and kind_of(key, left.objects[key]) == kind]
            for key in {max(keys), chance.choice(keys)}:
                yield key, damage


@pytest.mark.parametrize("which", SCENES, ids=" ".join)
def test_no_damage_to_an_object_loses_what_was_acknowledged_without_a_word(which: tuple[str, str, str]) -> None:
    left, chance = scene(*which), Random(7)
    outcomes = {
        (key, damage): found
        for key, damage in some_cells(left, chance)
        if (found := outcome(left, key, damage, chance)) is not None
    }
    assert {cell: found for cell, found in outcomes.items() if found not in (WHOLE, REFUSED)} == {}
    # Otherwise the damages were none, or nothing was ever served.
    assert {WHOLE, REFUSED} == set(outcomes.values())
