"""What the shop does with events."""

from semel.django import inbox
from shop.models import Invoice


def identity(message):
    """The order's number is the event's id: an order is made once."""
    return message.key.decode()


@inbox.handler("orders", consumer="billing", identity=identity)
def bill(message):
    Invoice.objects.create(order=int(message.key))
