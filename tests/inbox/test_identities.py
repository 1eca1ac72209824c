"""What a loop makes of the identity that the program finds for a message, or does not find."""

from collections.abc import Callable

import pytest

from semel.inbox.admission import Admission, Identity
from semel.inbox.events import HeadersUnreadable, IdentityIsPlace, Message

MESSAGE = Message("orders", 0, 3, None, b"", are_headers_readable=True)


def admission(identity: Identity, passing: Callable[[BaseException], bool] = lambda error: False) -> Admission:
    return Admission("billing", identity, 1, passing, lambda: 0)


@pytest.mark.parametrize(
    "identity",
    [lambda m: f"{m.topic}:0:3", lambda m: f"orders:{m.partition}:3", lambda m: f"orders:0:{m.offset}"],
    ids=["topic", "partition", "offset"],
)
def test_an_identity_that_is_made_of_any_part_of_the_place_ends_the_loop(identity: Identity) -> None:
    """Each delivery at another place would be a new event."""
    with pytest.raises(IdentityIsPlace):
        admission(identity).identity_of(MESSAGE)


def test_an_identity_that_cannot_be_found_for_now_is_asked_for_again() -> None:
    def away(message: Message) -> str:
        raise ConnectionError("the registry is away")

    assert isinstance(admission(away).identity_of(MESSAGE), ConnectionError)
    with pytest.raises(ConnectionError):
        admission(away, lambda error: isinstance(error, ConnectionError)).identity_of(MESSAGE)


def test_a_message_whose_headers_no_client_can_read_has_no_identity_whatever_is_found_without_them() -> None:
    unreadable = Message("orders", 0, 3, None, b"", are_headers_readable=False)
    assert isinstance(admission(lambda message: "e-1").identity_of(unreadable), HeadersUnreadable)
