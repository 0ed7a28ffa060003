"""Serves the route of a page of docs/guides, which is in shop/route.py of a folder of PYTHONPATH.

Arguments: the directory of the database's socket. Writes "port" and its number to standard output.
"""

import sys
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "app", "USER": "web", "HOST": sys.argv[1]}},
    ROOT_URLCONF=__name__,
)
django.setup()

from shop import route

urlpatterns = [
    path("events/<transport>", route.events) if hasattr(route, "events") else path("unsubscribe", route.unsubscribe)
]

with make_server("127.0.0.1", 0, get_wsgi_application()) as server:
    print("port", server.server_port, flush=True)
    server.serve_forever()
