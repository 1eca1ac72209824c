"""A kept verdict is whole, and none is ever overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from semel.audit.errors import AuditFailed
from semel.audit.history import keep
from semel.audit.verdict import Counted, Verdict

CLEAN = Verdict(Counted("sent", 3, 0, None), (), "00")


def test_each_verdict_has_a_file_of_its_own_even_at_the_same_time(tmp_path: Path) -> None:
    paths = [keep(CLEAN, tmp_path / "new", began_ms=7, seconds=0.1234, question={"once": True}) for _ in range(3)]
    assert [path.name for path in paths] == [
        "audit-1970-01-01T000000.007Z.json",
        "audit-1970-01-01T000000.007Z-2.json",
        "audit-1970-01-01T000000.007Z-3.json",
    ]
    assert sorted(tmp_path.joinpath("new").iterdir()) == sorted(paths), "nothing unfinished is left behind"
    told = json.loads(paths[0].read_text())
    assert told["verdict"] == CLEAN.as_json()
    assert (told["began_ms"], told["seconds"], told["asked"]) == (7, 0.123, {"once": True})


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditFailed, match="cannot be kept"):
        keep(CLEAN, tmp_path / "file", began_ms=7, seconds=1, question={})
