"""What `semel doctor URL` promises: one line for each thing, the exit code, and a store that is as it was before."""

import asyncio
import re
from argparse import Namespace
from pathlib import Path

import pytest

from semel.log.store import open_store
from semel.log.store.contract import Buffer
from semel.testing.stores import FaultyStore, MemoryStore, StoreFault
from semel.ui.cli import doctor
from semel.ui.cli.display import Finding, Mark
from semel.ui.cli.store_checks import examined
from semel_command import semel


def doctored(capsys: pytest.CaptureFixture[str], url: str) -> tuple[int, list[str]]:
    code = doctor.run(Namespace(store=url, data="."))
    return code, capsys.readouterr().out.splitlines()


def found(store: MemoryStore) -> list[Finding]:
    return asyncio.run(examined(store))


def fill(url: str, *keys: str) -> None:
    async def filled() -> None:
        store = open_store(url)
        for key in keys:
            await store.create(key, bytes(60_000))
        await store.close()

    asyncio.run(filled())


def visible(directory: Path) -> list[Path]:
    """The files in it, but for those of the engine."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))


def test_a_store_that_keeps_its_contract_is_shown_with_what_lies_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/store"
    fill(url, "format", "journal/0", "journal/1", "journal/2")
    before = visible(tmp_path / "store")
    code, lines = doctored(capsys, url)
    assert code == 0
    shown = [re.sub(r"[\d.]+ (ms|MB/s)", r"N \1", line) for line in lines]
    assert shown == [
        f"ok  store       {url}",
        "ok  contract    conditional creates and replaces, ranges, deletes",
        "ok  races       10 races of 4, one winner each",
        "ok  create      N ms, the median of 20",
        "ok  get         N ms, the median of 20",
        "ok  throughput  N MB/s, 4 objects of 4 MiB at once",
        "ok  format      1 object, 0.1 MB",
        "ok  journal     3 objects, 0.2 MB",
    ]
    assert visible(tmp_path / "store") == before


def test_what_an_interrupted_check_has_left_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path}/store"
    fill(url, "probe/1234/0", "probe/1234/1")
    code, lines = doctored(capsys, url)
    assert code == 0
    assert lines[-2:] == [
        "ok  contents    empty",
        "--  probe       2 objects of a check that was interrupted: delete what is below probe/",
    ]


@pytest.mark.parametrize("url", ["s3:", "nowhere", "file:///proc/1/store", "postgresql://nobody@127.0.0.1:1/nothing"])
def test_a_store_that_cannot_be_used_is_one_line_and_exit_code_1(url: str) -> None:
    ended = semel("doctor", url)
    assert ended.returncode == 1
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stdout.startswith("!!  store  ")
    assert ended.stderr == ""


class Overwrites(MemoryStore):
    """Takes the condition of a create and does not heed it."""

    async def create(self, key: str, body: Buffer) -> str:
        self.objects.delete(key)
        return await super().create(key, body)


def test_a_store_that_breaks_its_contract_is_bad_and_everything_else_is_shown_as_well() -> None:
    marks = {finding.what: finding.mark for finding in found(Overwrites())}
    assert marks.pop("contract") is Mark.BAD
    assert set(marks.values()) == {Mark.GOOD}
    assert {"store", "create", "get", "throughput"} <= set(marks)


def test_a_store_that_is_out_of_reach_in_the_middle_is_named() -> None:
    store = FaultyStore(latency_seconds=0)
    store.arm(StoreFault("throttled", call="list"))
    assert found(store)[-1].mark is Mark.BAD
    assert found(store)[-1].remedy == "see whether it is running and can be reached, then try again"
