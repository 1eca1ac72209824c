"""Whom the console lets in: nobody without its token, no page of another site; and what only reads changes nothing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.ui.console.door import SESSIONS_MAX, Door
from semel.ui.console.http import PageRefused, Request

PORT = 8080


def door_of(*, allow_changes: bool = True) -> Door:
    """A door whose secrets can be told apart and foretold."""
    numbers = itertools.count()
    return Door("127.0.0.1", PORT, allow_changes=allow_changes, secret=lambda: f"secret-{next(numbers)}")


def request(**headers: str) -> Request:
    return Request("GET", "/api/topics", headers={name.replace("_", "-"): value for name, value in headers.items()})


def change(door: Door, **other: str) -> Request:
    session = door.enter(door.token)
    headers = {
        "host": "127.0.0.1:8080",
        "origin": "http://127.0.0.1:8080",
        "cookie": f"{door.cookie_name}={session.cookie}",
        "content-type": "application/json",
        "x-semel-change": session.change_token,
        **{name.replace("_", "-"): value for name, value in other.items()},
    }
    return Request("POST", "/do/abort", headers={name: value for name, value in headers.items() if value}, body=b"{}")


def refused(door: Door, asked: Request) -> int:
    """The status with which a change is refused; 0 if it is let through."""
    try:
        door.check_origin(asked)
        door.check_change(asked)
    except PageRefused as refusal:
        return refusal.status
    return 0


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "[::1]", "10.1.2.3:9999", "127.0.0.1"]
)
def test_a_host_that_no_foreign_name_server_can_point_at_us_is_taken(host: str) -> None:
    door_of().check_origin(request(host=host, origin=f"http://{host}"))


@pytest.mark.parametrize(
    "host", ["evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil.example:8080", "[evil]:8080", ":8080"]
)
def test_a_host_that_somebody_may_have_rebound_is_refused(host: str) -> None:
    with pytest.raises(PageRefused) as refusal:
        door_of().check_origin(request(host=host))
    assert refusal.value.status == 403


def test_a_console_that_listens_on_a_name_is_reached_by_it() -> None:
    Door("build-7", PORT, allow_changes=False).check_origin(request(host="build-7:8080"))


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:3000", "https://127.0.0.1:8080", "null", ""]
)
def test_a_request_that_another_page_has_made_is_refused(origin: str) -> None:
    """A page on another port of this machine counts as the same site for cookies, and is refused here."""
    with pytest.raises(PageRefused):
        door_of().check_origin(request(host="127.0.0.1:8080", origin=origin))


def test_a_token_opens_one_session() -> None:
    door = door_of()
    token = door.token
    door.enter(token)
    with pytest.raises(PageRefused):
        door.enter(token)
    assert door.enter(door.token)


@given(st.lists(st.tuples(st.sampled_from(["enter", "enter again", "guess", "ask"]), st.integers(0, 99)), max_size=90))
def test_sessions_are_those_of_a_naive_model(steps: list[tuple[str, int]]) -> None:
    """Whatever is tried in whatever order: a token that was used opens nothing, and the oldest session goes first."""
    door = door_of()
    used: list[str] = []
    cookies: list[str] = []
    for step, number in steps:
        if step == "enter":
            used.append(door.token)
            cookies.append(door.enter(door.token).cookie)
        elif step == "ask" and cookies:
            place = number % len(cookies)
            cookie = request(cookie=f"a=b; {door.cookie_name}={cookies[place]}")
            if place >= len(cookies) - SESSIONS_MAX:
                assert door.session_of(cookie).cookie == cookies[place]
            else:
                with pytest.raises(PageRefused):
                    door.session_of(cookie)
        else:
            with pytest.raises(PageRefused):
                door.enter(used[number % len(used)] if step == "enter again" and used else "secret-guessed")


def test_the_cookie_is_kept_from_scripts_and_from_other_sites() -> None:
    door = door_of()
    cookie = door.set_cookie(door.enter(door.token))
    assert cookie.startswith("semel_console_8080=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}


def test_two_consoles_on_one_machine_leave_each_other_their_sessions() -> None:
    """A browser keeps the cookies of a machine, whatever the port, and sends all of them to each console."""
    doors = [Door("127.0.0.1", port, allow_changes=True) for port in (8080, 8081)]
    cookies = [door.set_cookie(door.enter(door.token)).partition(";")[0] for door in doors]
    kept = dict(cookie.split("=", 1) for cookie in cookies)
    sent = "; ".join(f"{name}={value}" for name, value in kept.items())
    for door, cookie in zip(doors, cookies, strict=True):
        assert door.session_of(request(cookie=sent)).cookie == cookie.partition("=")[2]


def test_a_change_goes_through_with_all_that_it_needs() -> None:
    door = door_of()
    assert refused(door, change(door, content_type="application/json; charset=utf-8")) == 0


@pytest.mark.parametrize(
    ("missing", "status"),
    [
        ({"cookie": ""}, 403),
        ({"cookie": "semel_console_8080=guessed"}, 403),
        ({"cookie": "semel_console_8080="}, 403),
        ({"x_semel_change": ""}, 403),
        ({"x_semel_change": "guessed"}, 403),
        ({"x_semel_change": "gu\xe9ssed"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": ""}, 415),
    ],
)
def test_a_change_that_lacks_one_thing_is_refused(missing: dict[str, str], status: int) -> None:
    door = door_of()
    assert refused(door, change(door, **missing)) == status


def test_a_change_token_is_that_of_one_session() -> None:
    door = door_of()
    other = door.enter(door.token)
    assert refused(door, change(door, x_semel_change=other.change_token)) == 403


def test_nothing_changes_unless_changes_are_allowed() -> None:
    door = door_of(allow_changes=False)
    assert refused(door, change(door)) == 403
