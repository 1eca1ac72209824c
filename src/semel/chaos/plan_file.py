"""A fault plan in a file: TOML, or JSON of the same shape.

    seed = 7
    hang_ms = 1800

    [odds]
    drop_ack = 0.02
    cut = 0.001

    [[fault]]
    fault = "drop_ack"
    at_request = 100
    api = "produce"

    [[fault]]
    fault = "hang"
    after_seconds = 5

Unknown names are refused, because a plan with a typing error would otherwise look like a network without faults. This
file must never open a socket.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from semel.chaos.plan import DELAY_MS_MAX, HANG_MS, Fault, FaultPlan, PlannedFault

# The APIs that a plan is likely to aim at, by their names in the protocol's documents; others go by their number.
API_KEYS: Final = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "api_versions": 18,
    "create_topics": 19,
    "init_producer_id": 22,
    "add_partitions_to_txn": 24,
    "add_offsets_to_txn": 25,
    "end_txn": 26,
    "txn_offset_commit": 28,
    "consumer_group_heartbeat": 68,
}
PRODUCE: Final = API_KEYS["produce"]
# Every request looks through all of them, so more would slow the proxy down.
PLANNED_FAULTS_MAX: Final = 1_000
# No count is as large, and no time in any unit.
NUMBER_MAX: Final = 1 << 62


class PlanRefused(ValueError):
    """The plan cannot be followed; the message says which part, and why."""


@dataclass
class PlanSettings:
    """The parts of a plan; a command line may still change them."""

    odds: dict[Fault, float] = field(default_factory=dict)
    planned: list[PlannedFault] = field(default_factory=list)
    seed: int = 1
    delay_ms_max: int = DELAY_MS_MAX
    hang_ms: int = HANG_MS

    def plan(self) -> FaultPlan:
        return FaultPlan(
            self.odds, seed=self.seed, delay_ms_max=self.delay_ms_max, hang_ms=self.hang_ms, planned=self.planned
        )


def read_plan(path: Path) -> PlanSettings:
    """The settings in a file. Raises PlanRefused."""
    try:
        text = path.read_text()
        plan = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise PlanRefused(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanRefused(f"{path}: {error}") from error
    try:
        return settings_of(plan)
    except PlanRefused as refused:
        raise PlanRefused(f"{path}: {refused}") from refused


def settings_of(plan: object) -> PlanSettings:
    """The settings in the contents of a file."""
    table = _table(plan, "the plan", {"seed", "delay_ms_max", "hang_ms", "odds", "fault"})
    settings = PlanSettings()
    settings.seed = _whole(table, "seed", settings.seed)
    settings.delay_ms_max = _whole(table, "delay_ms_max", settings.delay_ms_max)
    settings.hang_ms = _whole(table, "hang_ms", settings.hang_ms)
    odds = _table(table.get("odds", {}), "[odds]", set(Fault))
    settings.odds = {Fault(name): _likelihood(odds, name) for name in odds}
    faults = table.get("fault", [])
    if not isinstance(faults, list) or len(faults) > PLANNED_FAULTS_MAX:
        raise PlanRefused(f"'fault' is a list of at most {PLANNED_FAULTS_MAX}, each a [[fault]]")
    settings.planned = [_planned(one, number) for number, one in enumerate(faults, start=1)]
    return settings


def _planned(value: object, number: int) -> PlannedFault:
    where = f"[[fault]] number {number}"
    table = _table(value, where, {"fault", "times", "api", "at_request", "after_seconds"})
    name = table.get("fault")
    if name not in list(Fault):
        raise PlanRefused(f"{where} needs a 'fault', one of {', '.join(Fault)}, and has {name!r}")
    fault = Fault(str(name))
    if ("at_request" in table) == ("after_seconds" in table):
        raise PlanRefused(f"{where} needs a moment: 'at_request' or 'after_seconds', one of them")
    api_key = _api_key(table.get("api"), where)
    if fault is Fault.DROP_ACK and api_key not in (None, PRODUCE):
        raise PlanRefused(f"{where}: drop_ack strikes answers to produce, and no other api")
    return PlannedFault(
        fault,
        _whole(table, "times", 1, least=1),
        api_key,
        _whole(table, "at_request", 1, least=1) if "at_request" in table else None,
        _number(table, "after_seconds", 0.0) if "after_seconds" in table else None,
    )


def _api_key(value: object, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and value.lower() in API_KEYS:
        return API_KEYS[value.lower()]
    raise PlanRefused(f"{where}: 'api' is a number of the protocol or one of {', '.join(API_KEYS)}, not {value!r}")


def _table(value: object, where: str, known: set[Any]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise PlanRefused(f"{where} is a table of names and values")
    unknown = sorted(set(value) - known)
    if unknown:
        raise PlanRefused(f"{where} knows no {unknown[0]!r}, only {', '.join(sorted(known))}")
    return value


def _likelihood(table: Mapping[str, object], name: str) -> float:
    likelihood = _number(table, name, 0.0)
    if likelihood > 1:
        raise PlanRefused(f"{name!r} is a probability, between 0 and 1, not {likelihood}")
    return likelihood


def _number(table: Mapping[str, object], name: str, default: float) -> float:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < NUMBER_MAX:
        raise PlanRefused(f"{name!r} is a number of 0 or more, not {value!r}")
    return float(value)


def _whole(table: Mapping[str, object], name: str, default: int, least: int = 0) -> int:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < NUMBER_MAX:
        raise PlanRefused(f"{name!r} is a whole number of {least} or more, not {value!r}")
    return value
