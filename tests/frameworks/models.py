"""The model of docs/guides/django.md."""

from django.db import models


class Order(models.Model):
    customer = models.TextField()
    address = models.EmailField()

    class Meta:
        db_table = "orders"
