"""Gives the settings of a client for each semantic, with reasons, and finds mistakes in a configuration.

    settings.exactly_once("aiokafka").producer
    settings.check({"enable.idempotence": True, "acks": 1}, client="confluent")

It knows confluent-kafka, aiokafka, kafka-python and Java. This package must never import a client or any other package
of semel: it is data, and rules about data.
"""

from semel.settings.bundles import Bundle, Setting, at_least_once, at_most_once, bundle, exactly_once
from semel.settings.clients import Client, Role, Semantics
from semel.settings.conflicts import Conflict, Cost, UnknownSettings, check

__all__ = [
    "Bundle",
    "Client",
    "Conflict",
    "Cost",
    "Role",
    "Semantics",
    "Setting",
    "UnknownSettings",
    "at_least_once",
    "at_most_once",
    "bundle",
    "check",
    "exactly_once",
]
