"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    item = models.TextField(unique=True)


class Invoice(models.Model):
    order = models.BigIntegerField()
