"""Slots as a writer makes them."""

from semel.log.core.slots import History
from semel.log.replica.slot import digest_of, encode_head


def written(history: History, body: list[bytes], *, fence: bytes | None = None) -> bytes:
    """The next object of a history, which takes it in; `fence` is the nonce of who takes over."""
    digest = digest_of(body)
    head = history.following(sum(map(len, body)), digest) if fence is None else history.fence(fence, digest)
    encoded = encode_head(head)
    history.take(head, digest_of([encoded]))
    history.note_created(history.next_slot)
    return b"".join((encoded, *body))
