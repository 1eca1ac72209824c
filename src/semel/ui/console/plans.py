"""What a change would do: a plan, which the page shows first and which is carried out only if it still is the same.

One function makes the plan of a change, and it is called twice: for the page that shows the plan, and again when the
person has agreed. Each plan has a mark, a digest of what must not change meanwhile; the page sends back the mark that
it was shown. A function that makes a plan must never change anything: `Plan.do` does.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semel.client.errors import AuthenticationFailed, LogError, RefusedByBroker, UnknownTopic
from semel.ui.console.http import PageRefused, as_json
from semel.ui.console.query import NAME_BYTES_MAX, Query
from semel.wire.errors import ProtocolError

# What a person adds to a plan that was shown; no plan depends on these fields.
MARK: Final = "mark"
TYPED: Final = "typed"
PASSWORD: Final = "password"
ADDED: Final = (MARK, TYPED, PASSWORD)

Cell = str | int | None


@dataclass(frozen=True)
class Plan:
    """One without a title is carried out without a question, because it is easy to undo."""

    # Carries it out, and says what was done.
    do: Callable[[], str]
    title: str = ""
    # The name of the button that does it.
    button: str = ""
    warns: Sequence[str] = ()
    columns: Sequence[str] = ()
    # What it changes, as a table; it must be the same when the person has agreed.
    rows: Sequence[Sequence[Cell]] = ()
    says: Sequence[str] = ()
    # What must be the same besides; what is only in `says` may go on changing.
    seen: Any = None
    # The name that the person has to type.
    typed: str | None = None
    asks_password: bool = False
    # Fields that the page adds when the person has agreed, so that what was shown is done to the letter.
    pinned: Mapping[str, str] = field(default_factory=dict)
    # The command that does the same, for a person who may change nothing from the page.
    command: str = ""
    # The page that is shown afterwards, if this one is about something that is gone.
    then: str = ""


Planner = Callable[[Any, Query], Plan]


def show(make: Planner, source: Any, query: Query) -> dict[str, Any]:
    """The plan as the page gets it."""
    plan = make(source, query)
    told = {name: value for name, value in vars(plan).items() if name not in ("do", "seen")}
    return {**told, MARK: _mark(plan)}


def carry_out(make: Planner, source: Any, query: Query) -> str:
    """Do what the plan says that the page has shown; PageRefused if it would say something else now."""
    plan = make(source, query)
    if plan.title and query.text(MARK, "") != _mark(plan):
        raise PageRefused(400, "something has changed since this was shown, and nothing was done: look again")
    if plan.typed is not None and query.text(TYPED, "", text_max=NAME_BYTES_MAX) != plan.typed:
        raise PageRefused(400, f"nothing was done: type {plan.typed} to confirm it")
    try:
        return plan.do()
    except (RefusedByBroker, AuthenticationFailed, UnknownTopic):
        raise
    except (LogError, ProtocolError) as error:
        raise PageRefused(502, f"nobody knows whether it was done: {error}; look before you try again") from None


def _mark(plan: Plan) -> str:
    return hashlib.sha256(as_json([plan.title, plan.rows, plan.seen])).hexdigest()
