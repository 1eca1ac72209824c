"""Whose keys there are, and for which requests."""

from semel.http import Idempotency
from semel.http.django import transactions


def user(request):
    """Whose key it is: None for somebody who has not logged in, and gets 400."""
    found = request.native["django.request"].user
    return found.get_username() if found.is_authenticated else None


idempotency = Idempotency(transactions, scope=user, paths=("/orders*",))
