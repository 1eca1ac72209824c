"""Claims, leases, answers and the reaper in any order, held against what the rules say in plain Python."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine

from semel.http.answers import Answer
from semel.http.claims import (
    REAPED_ROWS_MAX,
    Accepted,
    Differs,
    Duplicate,
    Fenced,
    KeyState,
    Running,
    Term,
    claim,
    hold,
    keep,
    name_of,
    reap_batch,
    release,
)
from semel.http.tables import metadata

LEASE_MS, TTL_MS = 2000, 5000
NAME = name_of("anna", "k")
# Those who have claimed, in order; each goes on as if the key were his.
HOLDERS = st.integers(0, 4)
STEPS = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from(["one", "two"])),
    st.tuples(st.sampled_from(["keep", "hold", "release"]), HOLDERS),
    st.tuples(st.just("wait"), st.sampled_from([500, 2000, 5000])),
    st.tuples(st.just("reap"), st.none()),
)


@dataclass
class Key:
    """One key, as the rules see it."""

    payload: str
    token: int
    lease_until_ms: int
    expires_ms: int
    answer: Answer | None = None


class Model:
    def __init__(self) -> None:
        self.key: Key | None = None

    def claim(self, payload: str, now_ms: int) -> KeyState:
        key = self.key
        token = now_ms
        if key is not None:
            is_free = key.lease_until_ms <= now_ms
            is_over = key.expires_ms <= now_ms and (key.answer is not None or is_free)
            if not is_over and key.payload != payload:
                return Differs()
            if not is_over and key.answer is not None:
                ttl_ms = max(key.expires_ms - now_ms, 0)
                return Duplicate(key.answer.replayed(ttl_ms), ttl_ms)
            if not is_over and not is_free:
                return Running(-(-(key.lease_until_ms - now_ms) // 1000))
            token = key.token + 1
        self.key = Key(payload, token, now_ms + LEASE_MS, now_ms + TTL_MS)
        return Accepted(token)

    def is_held_by(self, token: int) -> bool:
        return self.key is not None and self.key.token == token and self.key.answer is None


def is_fenced(connection: Connection, what: str, token: int, answer: Answer, now_ms: int) -> bool:
    try:
        if what == "keep":
            keep(connection, NAME, token, answer, answer.status, Term(TTL_MS, LEASE_MS, now_ms))
        else:
            hold(connection, NAME, token, Term(TTL_MS, LEASE_MS, now_ms))
    except Fenced:
        return True
    return False


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_the_claims_do_what_the_rules_say(taken: list[tuple[str, object]]) -> None:
    engine, model, now_ms = create_engine("sqlite://"), Model(), 1_000_000
    tokens: list[int] = []
    with engine.begin() as connection:
        metadata.create_all(connection)
        for number, (what, which) in enumerate(taken):
            key = model.key
            if what == "claim":
                found = claim(connection, NAME, str(which), Term(TTL_MS, LEASE_MS, now_ms))
                if isinstance(found, Duplicate) and found.answer is not None:
                    found = Duplicate(found.answer.replayed(found.ttl_ms), found.ttl_ms)
                assert found == model.claim(str(which), now_ms)
                if isinstance(found, Accepted):
                    assert found.token not in tokens
                    tokens.append(found.token)
            elif what == "wait":
                now_ms += int(str(which))
            elif what == "reap":
                due = key is not None and max(key.expires_ms, key.lease_until_ms) <= now_ms
                assert reap_batch(connection, now_ms, REAPED_ROWS_MAX) == due
                model.key = None if due else key
            elif int(str(which)) >= len(tokens):
                continue
            elif what == "release":
                token = tokens[int(str(which))]
                release(connection, NAME, token)
                if key is not None and model.is_held_by(token):
                    key.lease_until_ms = 0
                    # Whoever has let go of the key is late from now on.
                    key.token += 1
            else:
                token, answer = tokens[int(str(which))], Answer(200 + number, ((b"location", b"/1"),), b"%d" % number)
                assert is_fenced(connection, what, token, answer, now_ms) != model.is_held_by(token)
                if key is not None and model.is_held_by(token):
                    key.lease_until_ms = 0 if what == "keep" else now_ms + LEASE_MS
                    key.answer = answer if what == "keep" else None
                    key.expires_ms = now_ms + TTL_MS
    engine.dispose()


def test_without_sqlalchemy_there_is_one_line_that_says_what_to_install() -> None:
    program = "import sys; sys.modules['sqlalchemy'] = None; import semel.http"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: semel.http needs SQLAlchemy, which is missing: pip install 'semel[app]'"
    )
