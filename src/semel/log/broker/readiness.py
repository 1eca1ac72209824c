"""Whether a broker can do something for clients, for what runs it, and decides whether to send clients there. Nothing
here changes anything.
"""

from semel.log.broker.broker import Broker


def why_not_ready(broker: Broker) -> str:
    """Why this broker neither serves as the active one nor stands by for it, in a line; empty if it does."""
    role = broker.role
    if broker.failed.done():
        return f"it has stopped serving: {broker.failed.exception()}"
    health = role.health
    store_fails = health is not None and health.failing_seconds >= role.lease_seconds
    if health is not None and (role.has_lost_lease or store_fails):
        return f"the store has failed for {health.failing_seconds:.1f} s: {health.why}"
    return "" if role.may_serve or role.is_another_active else "it hands over, or is about to become active"
