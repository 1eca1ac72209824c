"""Changes of the console, as its pages make them: they show a plan, and carry it out when the person has agreed."""

from __future__ import annotations

from typing import Any

from semel.ui.console.plans import MARK, TYPED, Planner, carry_out, show
from semel.ui.console.query import Query


def planned(make: Planner, source: Any, **values: object) -> dict[str, Any]:
    """The plan that a page shows."""
    return show(make, source, _query(values))


def agreed(make: Planner, source: Any, shown: dict[str, Any] | None = None, **values: object) -> str:
    """Agree to the plan that was shown, or that is shown now; answers what was done."""
    plan = planned(make, source, **values) if shown is None else shown
    return carry_out(make, source, _query({**values, **added(plan)}))


def added(plan: dict[str, Any]) -> dict[str, Any]:
    """What the page adds to the fields of a change when the person has agreed to this plan."""
    typed = {} if plan["typed"] is None else {TYPED: plan["typed"]}
    return {**plan["pinned"], **typed, MARK: plan[MARK]}


def _query(values: dict[str, Any]) -> Query:
    return Query({name: str(value) for name, value in values.items()})
