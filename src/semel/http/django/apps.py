"""The application that Django finds in INSTALLED_APPS. It must use no database: Django loads it at each start."""

from django.apps import AppConfig


class SemelHttpConfig(AppConfig):  # type: ignore[misc]
    name = "semel.http.django"
    label = "semel_http"
    verbose_name = "semel: keys of requests"

    def ready(self) -> None:
        """Django finds checks that a module has registered."""
        import semel.http.django.checks  # noqa: F401
