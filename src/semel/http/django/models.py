"""The tables of the keys as models, so that migrations make them and tests empty them. Nobody writes through these: the
claim is in `semel.http.claims`."""

from django.db import models


class Key(models.Model):  # type: ignore[misc]
    """One row for each caller and key."""

    pk = models.CompositePrimaryKey("scope", "key")
    scope = models.TextField()
    key = models.TextField()
    fingerprint = models.TextField()
    token = models.BigIntegerField()
    lease_until_ms = models.BigIntegerField()
    expires_ms = models.BigIntegerField()
    status = models.BigIntegerField(null=True)
    headers = models.TextField(null=True)
    body = models.BinaryField(null=True)

    class Meta:
        app_label = "semel_http"
        db_table = "semel_http_keys"
        indexes = (models.Index(fields=["expires_ms"], name="semel_http_keys_expires"),)


class Step(models.Model):  # type: ignore[misc]
    """One row for each step that a handler has finished."""

    pk = models.CompositePrimaryKey("scope", "key", "step")
    scope = models.TextField()
    key = models.TextField()
    step = models.TextField()
    result = models.TextField()

    class Meta:
        app_label = "semel_http"
        db_table = "semel_steps"
