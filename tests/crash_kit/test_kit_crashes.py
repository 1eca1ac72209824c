"""A part of what `make crash` does: a run for every few of the points where a piece of the kit does IO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crash_kit.run import PIECES, Piece, surveys
from semel.testing.broker import FaultyBroker

if TYPE_CHECKING:
    from semel.testing.postgres import PostgresServer

# So that all pieces of the kit together take a minute; no divisor of what a transaction has, so that all kinds of
# points have their turn.
STEP = 31


@pytest.fixture(params=PIECES, ids=lambda piece: "-".join(piece))
def piece(request: pytest.FixtureRequest) -> Piece:
    found: Piece = request.param
    return found


@pytest.fixture
def url_of_piece(request: pytest.FixtureRequest, piece: Piece, tmp_path: Path) -> str:
    if piece.database != "postgresql":
        return f"sqlite:///{tmp_path}/kit.db" if piece.database else ""
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


# Some ten runs, each of which waits for brokers to notice a death.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_piece_that_is_killed_where_it_does_io_goes_on_as_if_nothing_had_been(
    piece: Piece, url_of_piece: str, semel_broker: FaultyBroker
) -> None:
    found = list(surveys(piece, semel_broker.bootstrap, url_of_piece, STEP))
    assert [survey.wrong for survey in found] == [[]] * len(found)
    alone, *_ = found
    assert alone.killed >= 2
    assert alone.not_reached == 0
