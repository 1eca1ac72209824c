"""The audits that `semel audit --keep` has kept in a directory: their history, and one of them as a chart.

For a file that is no audit, the page shows its name and the error; it must never hide the others. The number and the
size of the files that are read are limited.
"""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from semel.ui.charts.drawing import WIDTH, Chart, Fate, Shape, fates, rectangle
from semel.ui.console.http import PageRefused
from semel.ui.console.query import Query

# Only the newest are read.
AUDITS_MAX: Final = 100
FILE_BYTES_MAX: Final = 8 * 1024 * 1024
IDS_MAX: Final = 1_000
WINDOWS_MAX: Final = 500
# A file is no audit if it has larger numbers.
NUMBER_MAX: Final = 1 << 53
KINDS: Final = ("lost", "doubled", "foreign", "altered")
# The least width of a part that is not empty.
_SEEN_MIN: Final = 8.0
_BAR_HEIGHT: Final = 100.0

Answer = dict[str, Any]


class Audits:
    """The audits of the directory that `--keep` names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The audits that were read, by name, size and time of change: a kept audit never changes.
        self._read: dict[tuple[str, int, int], Answer] = {}

    def every(self, query: Query) -> Answer:
        """The newest audits with their findings, and their history by source and sink."""
        shown = [self._one(path) for path in self._newest()]
        readable = [one for one in shown if one["trouble"] is None]
        return {
            "directory": str(self._directory),
            "audits": [_row(one) for one in shown],
            "histories": _histories(readable),
        }

    def one(self, query: Query) -> Answer:
        """One audit: for each sink a bar of stored, lost and doubled rows, with the ids."""
        name = query.text("audit")
        path = next((one for one in self._newest() if one.name == name), None)
        if path is None:
            raise PageRefused(404, f"there is no audit {name!r} in {self._directory}")
        found = self._one(path)
        if found["trouble"] is not None:
            raise PageRefused(400, f"{name}: {found['trouble']}")
        return {**found, "sinks": [{**sink, "chart": _bar(found, sink).as_json()} for sink in found["sinks"]]}

    def _newest(self) -> list[Path]:
        try:
            # `glob` would find nothing in a directory that it may not list.
            names = sorted(name for name in os.listdir(self._directory) if name.endswith(".json"))
        except FileNotFoundError:
            raise PageRefused(
                502, f"{self._directory}: there is no such directory; `semel audit --keep` makes it"
            ) from None
        except OSError as error:
            raise PageRefused(502, f"{self._directory}: {error.strerror or error}") from None
        return [self._directory / name for name in reversed(names[-AUDITS_MAX:])]

    def _one(self, path: Path) -> Answer:
        try:
            state = path.stat()
            known = (path.name, state.st_size, state.st_mtime_ns)
            if known not in self._read:
                if len(self._read) > 2 * AUDITS_MAX:
                    self._read.clear()
                self._read[known] = _audit(path, state.st_size)
            return self._read[known]
        except OSError as error:
            return {"name": path.name, "trouble": error.strerror or str(error)}


def _audit(path: Path, size_bytes: int) -> Answer:
    if size_bytes > FILE_BYTES_MAX:
        return {"name": path.name, "trouble": f"it has more than {FILE_BYTES_MAX} bytes"}
    try:
        content = json.loads(path.read_bytes())
        verdict = content["verdict"]
        return {
            "name": path.name,
            "trouble": None,
            "began_ms": _whole(content["began_ms"], least=-NUMBER_MAX),
            "seconds": _seconds(content["seconds"]),
            "clean": verdict["clean"] is True,
            "source": _counted(verdict["source"]),
            "sinks": [_sink(one) for one in verdict["sinks"]],
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        return {"name": path.name, "trouble": "it is no verdict that semel audit has kept"}


def _counted(content: Any) -> Answer:
    return {
        "name": str(content["name"]),
        "rows": _whole(content["rows"]),
        "without_id": _whole(content["without_id"]),
        "unreadable": _whole(content["unreadable"]["rows"]),
        "amount": None if content.get("amount") is None else str(content["amount"]),
    }


def _sink(content: Any) -> Answer:
    findings = {kind: _findings(content[kind]) for kind in KINDS}
    windows = [
        {
            "begin_ms": None if one["begin_ms"] is None else _whole(one["begin_ms"], least=-NUMBER_MAX),
            "source_rows": _whole(one["source_rows"]),
            "sink_rows": _whole(one["sink_rows"]),
        }
        for one in content["windows"][:WINDOWS_MAX]
    ]
    return {**_counted(content), "clean": content["clean"] is True, **findings, "windows": windows}


def _findings(content: Any) -> Answer:
    listed = [{"id": str(one["id"]), "rows": _whole(one["rows"])} for one in content["listed"][:IDS_MAX]]
    return {"rows": _whole(content["rows"]), "ids": _whole(content["ids"]), "listed": listed}


def _whole(value: Any, least: int = 0) -> int:
    """A number that charts can draw and browsers can read; ValueError for any other one."""
    number = int(value)
    if not least <= number <= NUMBER_MAX:
        raise ValueError("a number is too small or too large")
    return number


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no number of seconds")
    return seconds


def _row(one: Answer) -> Answer:
    if one["trouble"] is not None:
        return one
    counts = {kind: sum(sink[kind]["rows"] for sink in one["sinks"]) for kind in KINDS}
    sinks = [sink["name"] for sink in one["sinks"]]
    facts = {name: one[name] for name in ("name", "trouble", "began_ms", "seconds", "clean")}
    return {**facts, **counts, "source": one["source"]["name"], "rows": one["source"]["rows"], "sinks": sinks}


def _histories(audits: Iterable[Answer]) -> list[Answer]:
    """For each source and sink, the audits from the oldest to the newest, as columns."""
    by_pair: dict[tuple[str, str], list[tuple[Answer, Answer]]] = defaultdict(list)
    for one in audits:
        for sink in one["sinks"]:
            by_pair[one["source"]["name"], sink["name"]].append((one, sink))
    histories = []
    for (source, name), found in by_pair.items():
        found.sort(key=lambda pair: (pair[0]["began_ms"], pair[0]["name"]))
        columns = [Fate(one["source"]["rows"], sink["lost"]["rows"], sink["doubled"]["rows"]) for one, sink in found]
        wrong = sum(not sink["clean"] for _, sink in found)
        most = max(one.doubled for one in columns)
        title = f"{name}: {len(found)} audits, {wrong} of them not clean"
        histories.append(
            {
                "source": source,
                "sink": name,
                "count": len(found),
                "wrong": wrong,
                "first_ms": found[0][0]["began_ms"],
                "last_ms": found[-1][0]["began_ms"],
                "sent_max": max(one.sent for one in columns),
                "doubled_max": most,
                "chart": Chart(title, fates(columns, most)).as_json(),
            }
        )
    return histories


def _bar(audit: Answer, sink: Answer) -> Chart:
    """All rows that were sent or stored, side by side: stored once, lost, doubled, foreign, altered."""
    wrong = {kind: sink[kind]["rows"] for kind in KINDS}
    stored = max(audit["source"]["rows"] - wrong["lost"] - wrong["altered"], 0)
    counts = {"stored": stored, **wrong}
    total = max(sum(counts.values()), 1)
    seen = {kind: max(WIDTH * count / total, _SEEN_MIN) for kind, count in counts.items() if count}
    scale = WIDTH / max(sum(seen.values()), 1)
    shapes, x = [], 0.0
    for kind, width in seen.items():
        shapes.append(Shape(kind, rectangle(x, 0, width * scale, _BAR_HEIGHT)))
        x += width * scale
    words = ", ".join(f"{count:,} {'stored once' if kind == 'stored' else kind}" for kind, count in counts.items())
    return Chart(f"{sink['name']}: {words}", tuple(shapes))
