"""The registry of these tests, and what producers and consumers of Confluent's do with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from registries import PLACE, SHARED_REGISTRY, SmallRegistry, Subject, apicurio

import semel


@pytest.fixture(scope="session")
def registry_url() -> Iterator[str]:
    if SHARED_REGISTRY is not None:
        yield SHARED_REGISTRY
    elif PLACE.exists():
        with semel.broker() as broker, apicurio(broker.bootstrap) as url:
            yield url
    else:
        small = SmallRegistry()
        yield small.url
        small.stop()


@pytest.fixture
def small_registry() -> Iterator[SmallRegistry]:
    small = SmallRegistry()
    yield small
    small.stop()


@pytest.fixture
def subject(registry_url: str, request: pytest.FixtureRequest) -> Subject:
    return Subject(registry_url, f"{request.node.originalname}-{id(request)}")
