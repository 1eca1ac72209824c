"""Moves all that a running cluster holds into another one, record by record, each once: to Apache Kafka, for example.

It is a client of both, and works with any that speak the protocol. It must never write a record whose place in the
source is not committed in the same transaction.
"""
