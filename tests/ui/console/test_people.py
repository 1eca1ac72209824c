"""Who logs in: nobody by a printed address, everybody to look alone unless the file says more; no password is kept."""

from __future__ import annotations

import json
import stat
from contextlib import aclosing
from pathlib import Path

import pytest

from browsing import Browser, browse
from semel.testing.broker import FaultyBroker
from semel.ui.console import people
from semel.ui.console.door import Door
from semel.ui.console.http import PageRefused
from semel.ui.console.people import WRONG_MAX, WRONG_SECONDS, NoPeople, People

NOWHERE = "127.0.0.1:1"
PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "people.json"
    people.add(path, "reader", PASSWORD, may_change=False)
    people.add(path, "writer", PASSWORD, may_change=True)
    return path


async def login(browser: Browser, user: str, password: str = PASSWORD, **headers: str) -> int:
    answer = await browser.post("/login", {"user": user, "password": password}, **headers)
    if answer.status == 200:
        browser.cookie = answer.headers["set-cookie"].partition(";")[0]
    return answer.status


def take_right(file: Path, name: str) -> None:
    """Let a person change nothing any more, and leave the password as it is."""
    told = json.loads(file.read_text())
    told["people"][name]["may_change"] = False
    file.write_text(json.dumps(told))


def lose(file: Path) -> None:
    file.unlink()


def test_a_person_logs_in_and_only_looks_unless_the_file_says_more(file: Path) -> None:
    async def story(browser: Browser) -> None:
        (line,) = browser.lines
        assert "token" not in line
        refused = await browser.get("/api/session")
        assert (refused.status, "log in" in refused.told["error"]) == (403, True)
        assert (await browser.get("/api/door")).told == {"people": True}
        assert await login(browser, "reader", "wrong horse") == 403
        assert await login(browser, "nobody") == 403
        assert await login(browser, "reader", Origin="http://evil.example") == 403
        assert await login(browser, "reader") == 200
        told = (await browser.get("/api/session")).told
        assert (told["person"], told["allows_changes"], told["change_token"]) == ("reader", False, "")
        refused = await browser.post("/do/abort", {"id": "a"}, X_Semel_Change=told["change_token"])
        assert (refused.status, "you may only read" in refused.told["error"]) == (403, True)
        assert await login(browser, "writer") == 200
        told = (await browser.get("/api/session")).told
        assert (told["person"], told["allows_changes"]) == ("writer", True)
        change = {"id": "a"}
        assert (await browser.post("/do/abort", change, X_Semel_Change=told["change_token"])).status == 502
        # Who is taken out of the file is let in no longer, and who may no longer change things does not.
        take_right(file, "writer")
        refused = await browser.post("/do/abort", change, X_Semel_Change=told["change_token"])
        assert (refused.status, "you may only read" in refused.told["error"]) == (403, True)
        people.remove(file, "writer")
        assert (await browser.get("/api/session")).status == 403
        assert await login(browser, "reader") == 200
        assert (await browser.post("/logout", {})).status == 200
        assert (await browser.get("/api/session")).status == 403

    browse(NOWHERE, story, people=People(file), allow_changes=True)


@pytest.mark.parametrize("content", [None, "", "{"])
def test_while_the_file_cannot_be_read_nobody_is_let_in_and_no_session_ends(file: Path, content: str | None) -> None:
    """Somebody may be removed in the content that cannot be read."""
    good = file.read_text()

    def damage() -> None:
        if content is None:
            file.unlink()
        else:
            file.write_text(content)

    def mend() -> None:
        file.write_text(good)

    async def story(browser: Browser) -> None:
        assert await login(browser, "reader") == 200
        damage()
        refused = await browser.get("/api/session")
        assert (refused.status, "people.json" in refused.told["error"]) == (502, True)
        assert (await browser.get("/events/topics")).status == 502
        mend()
        assert (await browser.get("/api/session")).told["person"] == "reader"
        damage()
        assert (await browser.get("/api/session")).status == 502
        mend()
        people.remove(file, "reader")
        assert (await browser.get("/api/session")).status == 403
        # Whoever wants to leave can leave.
        assert await login(browser, "writer") == 200
        damage()
        assert (await browser.post("/logout", {})).status == 200
        mend()
        assert (await browser.get("/api/session")).status == 403

    browse(NOWHERE, story, people=People(file))


def test_a_new_password_ends_the_sessions_that_the_old_one_opened(file: Path) -> None:
    async def story(browser: Browser) -> None:
        assert await login(browser, "reader") == 200
        readers = browser.cookie
        assert await login(browser, "writer") == 200
        people.add(file, "writer", "another horse", may_change=True)
        assert (await browser.get("/api/session")).status == 403
        assert await login(browser, "writer") == 403
        assert await login(browser, "writer", "another horse") == 200
        assert (await browser.get("/api/session")).told["person"] == "writer"
        # Even if it is the same one again: whoever knew it before has to log in.
        people.add(file, "writer", "another horse", may_change=True)
        assert (await browser.get("/api/session")).status == 403
        people.remove(file, "writer")
        people.add(file, "writer", "another horse", may_change=True)
        assert (await browser.get("/api/session")).status == 403
        browser.cookie = readers
        assert (await browser.get("/api/session")).told["person"] == "reader"

    browse(NOWHERE, story, people=People(file))


@pytest.mark.parametrize("end", ["removed", "logged out", "unreadable"])
def test_an_open_page_gets_nothing_more_once_its_session_has_ended(file: Path, end: str, broker: FaultyBroker) -> None:
    async def story(browser: Browser) -> None:
        assert await login(browser, "reader") == 200
        # After a slow answer the next one would be long in coming, and the first one imports the client.
        await browser.get("/api/topics")
        async with aclosing(browser.events("/events/topics")) as answers:
            assert (await anext(answers))["count"] == 0
            if end == "logged out":
                assert (await browser.post("/logout", {})).status == 200
            elif end == "removed":
                people.remove(file, "reader")
            else:
                lose(file)
            broker.create_topic("secret")
            assert await anext(answers, None) is None

    browse(broker.bootstrap, story, people=People(file))


def test_the_address_of_another_console_lets_in_nobody_where_people_log_in(file: Path) -> None:
    door = Door("127.0.0.1", 8080, allow_changes=True, people=People(file))
    with pytest.raises(PageRefused):
        door.enter(door.token)


def test_a_console_that_only_reads_lets_nobody_change_anything(file: Path) -> None:
    async def story(browser: Browser) -> None:
        assert await login(browser, "writer") == 200
        told = (await browser.get("/api/session")).told
        assert (told["allows_changes"], told["change_token"]) == (False, "")
        assert (await browser.post("/do/abort", {"id": "a"}, X_Semel_Change="")).status == 403

    browse(NOWHERE, story, people=People(file))


def test_where_nobody_logs_in_a_login_is_refused() -> None:
    async def story(browser: Browser) -> None:
        assert (await browser.get("/api/door")).told == {"people": False}
        assert await login(browser, "reader") == 404

    browse(NOWHERE, story)


def test_after_some_wrong_passwords_even_the_right_one_waits(file: Path) -> None:
    now = [0.0]
    known = People(file, clock=lambda: now[0])
    for _ in range(WRONG_MAX):
        with pytest.raises(PageRefused, match="no person"):
            known.check("reader", "wrong horse")
    with pytest.raises(PageRefused, match="too many"):
        known.check("reader", PASSWORD)
    now[0] += WRONG_SECONDS
    assert known.check("reader", PASSWORD).name == "reader"


def test_no_password_is_in_the_file_which_is_its_owners_alone(file: Path) -> None:
    assert PASSWORD not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first, second = (one["scrypt"] for one in people.read(file).values())
    assert first != second, "each has a salt of its own"


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": 2, "people": {}}', '{"format": 1, "people": [1]}', "[" * 9000]
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "people.json"
    path.write_text(content)
    with pytest.raises(NoPeople, match=r"people\.json"):
        People(path)
    with pytest.raises(NoPeople, match="makes it"):
        People(tmp_path / "nowhere")
    before = path.read_bytes()
    with pytest.raises(NoPeople, match=r"people\.json"):
        people.add(path, "anna", PASSWORD, may_change=False)
    assert path.read_bytes() == before


def test_where_no_file_can_be_nobody_is_told_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "people.json"):
        with pytest.raises(NoPeople, match=r": (Is|Not) a directory$"):
            People(path)
        with pytest.raises(NoPeople, match=r": (Is|Not) a directory$"):
            people.add(path, "anna", PASSWORD, may_change=False)


@pytest.mark.parametrize(("name", "password"), [("", PASSWORD), ("a\x1b[2J", PASSWORD), ("a", "short")])
def test_a_name_or_a_password_that_will_not_do_is_refused(tmp_path: Path, name: str, password: str) -> None:
    with pytest.raises(NoPeople):
        people.add(tmp_path / "people.json", name, password, may_change=False)
