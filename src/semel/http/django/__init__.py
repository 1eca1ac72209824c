"""HTTP keys for Django: an application for INSTALLED_APPS, with a middleware, the tables as a migration, and checks.

    INSTALLED_APPS = [..., "semel.http.django"]
    MIDDLEWARE = [..., "semel.http.django.middleware.IdempotencyMiddleware"]
    SEMEL_IDEMPOTENCY = "shop.keys.idempotency"      # an Idempotency(transactions, scope=...)

A key commits with what the ORM does, in one transaction of the alias that `transactions` names. What a claim is, and
what an answer decides, is in `semel.http`; this package must have no rules of its own for that.
"""

from semel.http.django.atomic import transactions

__all__ = ["transactions"]
