"""`semel schema` says what it made, can be run by many at once, and fails with one line."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from semel.schema.tables import ROOMS
from semel.ui.cli import main


def semel(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["schema", *words])
    return int(str(ended.value.code))


def test_it_says_what_it_made_and_that_there_is_nothing_to_make(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert semel("http", "--database", url) == 0
    assert capsys.readouterr().out == "http: made semel_http_keys, semel_steps\n"
    assert semel("http", "--database", url) == 0
    assert capsys.readouterr().out == "http: unchanged, version 1\n"
    assert semel("http", "--check", "--database", url) == 0
    assert capsys.readouterr().out == "the tables are as this version of semel needs them\n"
    assert semel("--check", "--database", url) == 1
    said = capsys.readouterr()
    assert said.err.startswith("semel: this database has no table semel_")
    assert said.err.endswith(": run semel schema --database URL\n")


def test_the_help_names_each_room_that_it_makes_and_so_does_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert semel("--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{', '.join(room.name for room in ROOMS[:-1])} or {ROOMS[-1].name} (all)" in said
    page = (Path(__file__).parent.parent.parent / "docs/how-to/schema.md").read_text()
    assert {room.name for room in ROOMS if f"`{room.name}`" in page} == {room.name for room in ROOMS}


def test_commands_at_once_make_each_table_once(url: str) -> None:
    command = [Path(sys.executable).with_name("semel"), "schema", "--database", url]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=120) for process in running]
    assert [(process.returncode, err) for process, (_, err) in zip(running, said, strict=True)] == [(0, "")] * 3
    assert "".join(out for out, _ in said).count("semel_http_keys") == 1


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///there/is/no/folder.db", "postgresql://there.is.none/app"])
def test_it_prints_without_a_database(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert semel("inbox", "--print", "--database", url) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("CREATE TABLE IF NOT EXISTS semel_schema (\n    room TEXT NOT NULL,\n")
    assert printed.endswith("INSERT INTO semel_schema (room, version) VALUES ('inbox', 1);\n")


def test_sqlites_own_shell_runs_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert semel("--print", "--database", "sqlite://") == 0
    with sqlite3.connect(tmp_path / "app.db") as connection:
        connection.executescript(capsys.readouterr().out)
    assert semel("--check", "--database", f"sqlite:///{tmp_path}/app.db") == 0


def test_the_url_of_an_application_on_asyncio_will_do(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = url.replace("sqlite://", "sqlite+aiosqlite://").replace("postgresql://", "postgresql+asyncpg://")
    assert semel("--database", driver) == 0
    assert semel("--check", "--database", url) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--database", "oracle://host/app"], "oracle is no database that semel knows; there are "),
        (
            ["--database", "postgressql://host/app"],
            "postgressql is no database that semel knows; was postgresql meant?",
        ),
        (["--database", "app.db"], "'app.db' is no database URL"),
        (["--database", "postgresql://anna:secret@host:slip/app"], "this is no database URL"),
        (["--database", "sqlite:////there/is/no/folder.db"], "the database: unable to open database file"),
        (["--database", "postgresql://anna@127.0.0.1:1/app"], "the database: connection failed"),
        (["inboks", "--database", "sqlite://"], "'inboks' has no tables; there are "),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert semel(*words) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"semel: {says}")


def test_who_lacks_sqlalchemy_is_told_what_to_install() -> None:
    program = "import sys; sys.modules['sqlalchemy'] = None\nfrom semel.ui.cli import main\nmain(sys.argv[1:])"
    words = ["schema", "--database", "sqlite://"]
    ran = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (
        1,
        "semel: this command needs SQLAlchemy, which is missing: pip install 'semel[app]'\n",
    )
