"""The application that Django finds in INSTALLED_APPS, as "semel.django" or, by its older name, "semel.http.django". It
must use no database: Django loads it at each start."""

from importlib import import_module

from django.apps import AppConfig


class SemelConfig(AppConfig):  # type: ignore[misc]
    name = "semel.django"
    label = "semel"
    verbose_name = "semel"

    def ready(self) -> None:
        """Django finds checks that a module has registered."""
        import_module(f"{self.name}.checks")
