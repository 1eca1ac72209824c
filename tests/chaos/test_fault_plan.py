"""What a plan promises: each fault strikes at its moment, as often as it says, and a file is read or refused."""

import contextlib
import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.chaos.plan import ON_ACKS, ON_ANSWERS, ON_REQUESTS, Fault, FaultPlan, PlannedFault
from semel.chaos.plan_file import PlanRefused, PlanSettings, read_plan, settings_of

PRODUCE, FETCH = 0, 1
CHANCE = random.Random(0)

PLAN = """
seed = 7
hang_ms = 900

[odds]
drop_ack = 0.02
cut = 1

[[fault]]
fault = "drop_ack"
at_request = 100
api = "produce"
times = 2

[[fault]]
fault = "hang"
after_seconds = 5
"""


def request(plan: FaultPlan, api_key: int) -> Fault | None:
    plan.count_request(api_key)
    return plan.draw(CHANCE, ON_REQUESTS, api_key)


@given(
    st.lists(st.sampled_from([PRODUCE, FETCH]), max_size=30),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([None, PRODUCE, FETCH]),
)
def test_a_planned_fault_strikes_its_request_and_those_behind_it(
    requests: list[int], first: int, times: int, api_key: int | None
) -> None:
    plan = FaultPlan(planned=[PlannedFault(Fault.CUT, times, api_key, at_request=first)])
    struck = [request(plan, asked) is Fault.CUT for asked in requests]
    aimed_at = [number for number, asked in enumerate(requests) if api_key in (None, asked)]
    expected = set(aimed_at[first - 1 : first - 1 + times])
    assert [number for number, was in enumerate(struck) if was] == sorted(expected)
    assert plan.fired[Fault.CUT] == len(expected)
    assert plan.requests == len(requests)


def test_what_is_planned_for_answers_strikes_the_next_that_it_can() -> None:
    plan = FaultPlan(planned=[PlannedFault(Fault.DROP_ACK, at_request=2)])
    assert [request(plan, FETCH), request(plan, PRODUCE)] == [None, None]
    assert plan.draw(CHANCE, ON_ANSWERS, FETCH) is None
    assert plan.draw(CHANCE, ON_ACKS, PRODUCE) is Fault.DROP_ACK
    assert plan.draw(CHANCE, ON_ACKS, PRODUCE) is None


def test_a_plan_is_read_from_toml_and_from_json(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    expected = PlanSettings(
        odds={Fault.DROP_ACK: 0.02, Fault.CUT: 1.0},
        planned=[
            PlannedFault(Fault.DROP_ACK, 2, PRODUCE, at_request=100),
            PlannedFault(Fault.HANG, after_seconds=5.0),
        ],
        seed=7,
        hang_ms=900,
    )
    assert read_plan(tmp_path / "plan.toml") == expected
    faults = [
        {"fault": "drop_ack", "at_request": 100, "api": 0, "times": 2},
        {"fault": "hang", "after_seconds": 5.0},
    ]
    said = {"seed": 7, "hang_ms": 900, "odds": {"drop_ack": 0.02, "cut": 1}, "fault": faults}
    (tmp_path / "plan.json").write_text(json.dumps(said))
    assert read_plan(tmp_path / "plan.json") == expected


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("sede = 7", "the plan knows no 'sede', only delay_ms_max, fault, hang_ms, odds, seed"),
        ("seed = true", "'seed' is a whole number of 0 or more, not True"),
        ("[odds]\ndrop_acks = 0.1", "[odds] knows no 'drop_acks', only cut,"),
        ("[odds]\ncut = 1.5", "'cut' is a probability, between 0 and 1, not 1.5"),
        ("[[fault]]\nat_request = 1", "[[fault]] number 1 needs a 'fault', one of drop_ack,"),
        ("[[fault]]\nfault = 'cut'", "[[fault]] number 1 needs a moment: 'at_request' or 'after_seconds'"),
        ("[[fault]]\nfault = 'cut'\nat_request = 0", "'at_request' is a whole number of 1 or more, not 0"),
        ("[[fault]]\nfault = 'cut'\nafter_seconds = nan", "'after_seconds' is a number of 0 or more, not nan"),
        ("[[fault]]\nfault = 'cut'\nat_request = 1\napi = 'prduce'", "'api' is a number of the protocol or one of"),
        ("[[fault]]\nfault = 'drop_ack'\nat_request = 1\napi = 'fetch'", "drop_ack strikes answers to produce"),
        ("[[fault]]\nfault = ['cut']\nat_request = 1", "[[fault]] number 1 needs a 'fault', one of drop_ack,"),
        ("seed = ", "Invalid value"),
        (f"seed = {'[' * 10_000}", "maximum recursion depth"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_the_file_and_the_reason(tmp_path: Path, text: str, refusal: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(PlanRefused) as refused:
        read_plan(tmp_path / "plan.toml")
    assert str(refused.value).startswith(f"{tmp_path}/plan.toml: ")
    assert refusal in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_plan_of_the_guide_is_one(tmp_path: Path) -> None:
    guide = (Path(__file__).parent.parent.parent / "docs/how-to/test-your-code.md").read_text()
    [block] = re.findall(r"^```toml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    (tmp_path / "plan.toml").write_text(block)
    settings = read_plan(tmp_path / "plan.toml")
    assert (settings.seed, settings.hang_ms, len(settings.odds)) == (7, 1800, 2)
    assert [planned.fault for planned in settings.planned] == [Fault.DROP_ACK, Fault.HANG]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["seed", "odds", "fault", "cut", "hang", "api", "at_request", "times"]), inner
        )
    ),
)


@given(JSON)
def test_whatever_a_file_says_is_read_or_refused(said: object) -> None:
    with contextlib.suppress(PlanRefused):
        settings_of(said).plan()
