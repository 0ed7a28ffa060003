"""Calls the function of docs/guides/django.md, which is in shop/confirmation.py of a folder of PYTHONPATH.

Reads orders as a JSON array of [customer, address, invoice in hexadecimal] from its standard input. Writes what became of
each as a JSON array: "order <id>", "refused <why>" or "failed <SQLSTATE>".
"""

import json
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "app", "USER": "web", "HOST": sys.argv[1]}},
    INSTALLED_APPS=["shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.db import Error
from shop.confirmation import MailRefused, place_order

results = []
for customer, address, invoice in json.load(sys.stdin):
    try:
        results.append(f"order {place_order(customer, address, bytes.fromhex(invoice)).id}")
    except MailRefused as error:
        results.append(f"refused {error}")
    except Error as error:
        results.append(f"failed {error.__cause__.sqlstate}")
print(json.dumps(results))
