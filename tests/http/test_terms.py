"""How long an answer and a lease hold: to the millisecond, and for their holder alone."""

from sqlalchemy import Engine

from semel.http.claims import NO_LEASE, Accepted, Running, Term, claim, is_kept, keep, name_of

NAME = name_of("anna", "k-1")


def test_an_answer_is_replayed_until_it_has_expired_and_then_the_request_is_executed_again(engine: Engine) -> None:
    with engine.begin() as connection:
        assert claim(connection, NAME, "f", Term(100, NO_LEASE, now_ms=0)) == Accepted(0)
        keep(connection, NAME, 0, None, 201, Term(100, NO_LEASE, now_ms=0))
        assert not isinstance(claim(connection, NAME, "f", Term(100, NO_LEASE, now_ms=99)), Accepted)
        assert isinstance(claim(connection, NAME, "f", Term(100, NO_LEASE, now_ms=100)), Accepted)


def test_a_lease_that_is_longer_than_the_time_an_answer_is_kept_is_taken_from_nobody(engine: Engine) -> None:
    with engine.begin() as connection:
        assert claim(connection, NAME, "f", Term(100, 1_000, now_ms=0)) == Accepted(0)
        assert claim(connection, NAME, "f", Term(100, 1_000, now_ms=999)) == Running(1)
        assert claim(connection, NAME, "f", Term(100, 1_000, now_ms=1_000)) == Accepted(1)


def test_the_answer_of_a_successor_is_not_that_of_the_one_who_was_overtaken(engine: Engine) -> None:
    """Its own transaction was lost, and it must not answer as if it had committed."""
    with engine.begin() as connection:
        claim(connection, NAME, "f", Term(100, 1_000, now_ms=0))
        assert claim(connection, NAME, "f", Term(100, 1_000, now_ms=1_000)) == Accepted(1)
        assert not is_kept(connection, NAME, 1)
        keep(connection, NAME, 1, None, 201, Term(100, 1_000, now_ms=1_000))
        assert [is_kept(connection, NAME, token) for token in (0, 1)] == [False, True]
