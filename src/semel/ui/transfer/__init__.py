"""Copies the log of a running cluster into another cluster, such as Apache Kafka, each record exactly once. It is a
client of both, and works with all clusters that speak Kafka's protocol. It must never write a record without
committing, in the same transaction, how far it has copied the source.
"""
