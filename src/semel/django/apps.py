"""The application, under the name that INSTALLED_APPS has for it."""

from semel.http.django.apps import SemelConfig

__all__ = ["SemelConfig"]
