"""The dashboard for Grafana asks for what semel shows, in words that Prometheus understands, and hides nothing."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from promtool import figures_not_shown, promtool

ROOT: Final = Path(__file__).parent.parent.parent
FILE: Final = ROOT / "deploy/grafana/semel.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES: Final = [target["expr"] for panel in PANELS for target in panel["targets"]]
# What Grafana puts in the place of its variables.
FILLED: Final = {"$__rate_interval": "1m", "$job": ".+", "$instance": ".+"}


def filled(query: str) -> str:
    for variable, value in FILLED.items():
        query = query.replace(variable, value)
    return query


def test_each_figure_is_one_that_semel_shows_and_each_counter_is_shown_as_a_rate() -> None:
    assert figures_not_shown(QUERIES, "bucket", "count") == set()
    assert [query for query in QUERIES if re.search("_(total|bucket|count)[{[]", query) and "rate(" not in query] == []


@pytest.mark.parametrize("query", QUERIES)
def test_prometheus_understands_each_query(query: str) -> None:
    assert promtool("promql", "format", "--experimental", filled(query)).strip()


def test_each_panel_says_what_it_shows_and_none_covers_another() -> None:
    assert [panel["title"] for panel in PANELS if not panel["description"] or not panel["targets"]] == []
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = sorted(
        (place["y"] + row, place["x"], place["x"] + place["w"])
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for row in range(place["h"])
    )
    assert all(end <= 24 for _, _, end in places)
    assert all(one[0] < other[0] or one[2] <= other[1] for one, other in pairwise(places))


def test_compose_brings_it_to_grafana() -> None:
    compose = yaml.safe_load((ROOT / "deploy/container/compose.yml").read_text(encoding="utf-8"))
    grafana = compose["services"]["grafana"]
    assert grafana["volumes"] == ["../grafana:/dashboards:ro"]
    given = {one["source"]: yaml.safe_load(compose["configs"][one["source"]]["content"]) for one in grafana["configs"]}
    assert given["dashboards"]["providers"][0]["options"]["path"] == "/dashboards"
    assert given["datasource"]["datasources"][0]["type"] == "prometheus"
