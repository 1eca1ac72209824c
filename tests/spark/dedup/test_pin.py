"""State that was made with other settings is refused, by what was changed: it would call duplicates new."""

import json

import pytest

from semel.spark.dedup.judge import STATE_VERSION, StateMismatch, check_pin, pin
from semel.spark.dedup.version_judge import VersionJudge

PINNED = {"aggregate": ["order"], "version": "version", "types": ["text"]}


def pinned(buckets: int = 16, forget_ms: int = 1000, **changed: object) -> str:
    return pin(VersionJudge({**PINNED, **changed}, forget_ms), buckets)


def test_state_of_the_same_settings_goes_on_though_what_it_does_not_depend_on_was_changed() -> None:
    check_pin(pinned(), pinned())
    check_pin(pinned(forget_ms=1), pinned(forget_ms=2))


def test_state_of_another_setting_is_refused_by_its_name() -> None:
    for changed, said in (
        (pinned(buckets=8), "buckets was 16 and is 8"),
        (pinned(aggregate=["customer"]), r"aggregate was \['order'\] and is \['customer'\]"),
        (pinned(version="number"), "version was 'version' and is 'number'"),
        (pinned(types=["whole number"]), r"types was \['text'\] and is \['whole number'\]"),
    ):
        with pytest.raises(StateMismatch, match=said):
            check_pin(pinned(), changed)


def test_state_of_another_layout_is_refused_whatever_the_columns_are_called() -> None:
    """The judge of versions has a setting of that name, too."""
    former = json.dumps({**json.loads(pinned()), "state_version": STATE_VERSION - 1}, sort_keys=True)
    with pytest.raises(StateMismatch, match=f"state_version was {STATE_VERSION - 1} and is {STATE_VERSION}"):
        check_pin(former, pinned())
