"""HTTP keys for Django: a middleware, and the function that lets the keys use the transaction of the ORM.

    INSTALLED_APPS = [..., "semel.django"]
    MIDDLEWARE = [..., "semel.http.django.middleware.IdempotencyMiddleware"]
    SEMEL = {"IDEMPOTENCY": "shop.keys.idempotency"}      # an Idempotency(transactions, scope=...)

A key commits with what the ORM does, in one transaction of the alias that `transactions` names. What a claim is, and
what an answer decides, is in `semel.http`; this package must have no rules of its own for that. Tables, checks and
commands are in `semel.django`.
"""

from semel.http.django.atomic import transactions

__all__ = ["transactions"]
