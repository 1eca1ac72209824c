"""The pages of audits say what the kept verdicts say, and no file hides another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from browsing import Browser, browse
from console_scene import kept_audits
from semel.audit.history import keep
from semel.audit.verdict import Counted, Finding, Findings, SinkVerdict, Verdict, WindowCount
from semel.ui.console.audits import AUDITS_MAX, Audits
from semel.ui.console.http import PageRefused, as_json
from semel.ui.console.query import Query

NOWHERE = "127.0.0.1:1"
HOSTILE = "<script>alert(1)</script>"


def kept(directory: Path, at_ms: int, sent: int, lost: int = 0, doubled: int = 0) -> str:
    def findings(count: int) -> Findings:
        return Findings(count, count, tuple(Finding(f"{HOSTILE}{n}".encode(), 1) for n in range(count)))

    sink = Counted("parquet:out", sent - lost + doubled, 0, None)
    windows = (WindowCount(None, sent, sent - lost),) if lost else ()
    verdict = SinkVerdict(sink, findings(lost), findings(doubled), Findings(), Findings(), 1, 1, windows)
    whole = Verdict(Counted("semel://h:1/t", sent, 0, None), (verdict,), "00")
    return keep(whole, directory, began_ms=at_ms, seconds=1.5, question={}).name


def test_the_history_is_in_the_order_of_time_and_counts_what_was_wrong(tmp_path: Path) -> None:
    kept(tmp_path, 1_000, 100)
    kept(tmp_path, 3_000, 120, lost=2, doubled=3)
    kept(tmp_path, 2_000, 110)
    answer = Audits(tmp_path).every(Query({}))
    assert [(one["rows"], one["lost"], one["doubled"], one["clean"]) for one in answer["audits"]] == [
        (120, 2, 3, False),
        (110, 0, 0, True),
        (100, 0, 0, True),
    ]
    (history,) = answer["histories"]
    assert (history["count"], history["wrong"], history["sent_max"], history["doubled_max"]) == (3, 1, 120, 3)
    assert (history["first_ms"], history["last_ms"]) == (1_000, 3_000)
    assert history["chart"]["title"] == "parquet:out: 3 audits, 1 of them not clean"


def test_the_scene_of_the_pictures_has_audits_that_are_clean_and_some_that_are_not(tmp_path: Path) -> None:
    """A browser is needed for the rest of it, so that most runs would not find out that it breaks."""
    kept_audits(tmp_path)
    answer = Audits(tmp_path).every(Query({}))
    assert [one["trouble"] for one in answer["audits"]] == [None] * 14
    assert sum(not one["clean"] for one in answer["audits"]) == 3


def test_an_audit_is_a_picture_with_the_ids(tmp_path: Path) -> None:
    name = kept(tmp_path, 1_000, 100, lost=2, doubled=3)
    (sink,) = Audits(tmp_path).one(Query({"audit": name}))["sinks"]
    assert sink["chart"]["title"] == "parquet:out: 98 stored once, 2 lost, 3 doubled, 0 foreign, 0 altered"
    assert [one["kind"] for one in sink["chart"]["shapes"]] == ["stored", "lost", "doubled"]
    assert [one["id"] for one in sink["lost"]["listed"]] == [f"{HOSTILE}0", f"{HOSTILE}1"]
    assert sink["windows"] == [{"begin_ms": None, "source_rows": 100, "sink_rows": 98}]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 100_000, b"\xff", json.dumps({"verdict": {"clean": True}}).encode(), b"1e999"]
)
def test_a_file_that_is_no_verdict_is_told_and_hides_no_other(tmp_path: Path, content: bytes) -> None:
    kept(tmp_path, 1_000, 100)
    (tmp_path / "zzz.json").write_bytes(content)
    audits = Audits(tmp_path)
    bad, good = audits.every(Query({}))["audits"]
    assert (bad["name"], bad["trouble"]) == ("zzz.json", "it is no verdict that semel audit has kept")
    assert good["clean"] is True
    with pytest.raises(PageRefused, match="no verdict"):
        audits.one(Query({"audit": "zzz.json"}))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" + 400 * "0", "-1", '"many"', "null", "[]"])
@pytest.mark.parametrize("place", ["began_ms", "seconds", "rows", "ids", "begin_ms", "source_rows"])
def test_a_number_that_is_none_in_a_verdict_hides_no_other(tmp_path: Path, place: str, number: str) -> None:
    """JSON of Python may hold numbers that no browser reads, and no chart can draw."""
    kept(tmp_path, 1_000, 100)
    file = tmp_path / kept(tmp_path, 2_000, 100, lost=2, doubled=3)
    text = file.read_text()
    changed = re.sub(rf'"{place}": ?[^,}}\]]+', f'"{place}": {number}', text)
    assert f'"{place}": {number}' in changed
    file.write_text(changed)
    audits = Audits(tmp_path)
    newest, good = audits.every(Query({}))["audits"]
    assert (newest["name"], good["clean"]) == (file.name, True)
    json.loads(as_json(audits.every(Query({}))), parse_constant=pytest.fail)
    if newest["trouble"] is None:
        json.loads(as_json(audits.one(Query({"audit": file.name}))), parse_constant=pytest.fail)


def test_no_file_outside_the_directory_is_ever_read(tmp_path: Path) -> None:
    inside = tmp_path / "audits"
    kept(inside, 1_000, 100)
    outside = kept(tmp_path, 2_000, 100)
    for name in (f"../{outside}", str(tmp_path / outside), ""):
        with pytest.raises(PageRefused):
            Audits(inside).one(Query({"audit": name}))


def test_a_directory_that_cannot_be_listed_is_no_empty_history(tmp_path: Path) -> None:
    (tmp_path / "audits").write_text("a file")
    with pytest.raises(PageRefused, match="audits: Not a directory"):
        Audits(tmp_path / "audits").every(Query({}))


def test_only_the_newest_are_shown(tmp_path: Path) -> None:
    for number in range(AUDITS_MAX + 5):
        kept(tmp_path, number, number)
    shown: list[dict[str, Any]] = Audits(tmp_path).every(Query({}))["audits"]
    assert [one["rows"] for one in shown] == list(range(AUDITS_MAX + 4, 4, -1))


def test_a_console_without_audits_or_without_their_directory_says_how_to_get_them(tmp_path: Path) -> None:
    async def without(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/audits")
        assert (refused.status, "--audits DIR" in refused.told["error"]) == (404, True)

    browse(NOWHERE, without)

    async def away(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/audits")
        assert (refused.status, "--keep" in refused.told["error"]) == (502, True)

    browse(NOWHERE, away, audits=Audits(tmp_path / "nowhere"))
