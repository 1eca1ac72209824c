"""semel in a Django project: an application with tables, checks, admin pages and commands; outbox and inbox by the ORM.

    INSTALLED_APPS = [..., "semel.django"]
    SEMEL = {"ALIAS": "default", "KAFKA": {"bootstrap.servers": "..."}, "IDEMPOTENCY": "shop.keys.idempotency"}

    from semel.django import inbox, outbox

Claims and messages are in the transactions of Django's own connections. What a claim is, and when it commits, is in
`semel.http`, `semel.inbox` and `semel.outbox`; this room must have no rules of its own for that. Django loads this file
at each start, so it must import nothing.
"""
