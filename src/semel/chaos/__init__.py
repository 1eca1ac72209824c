"""Faults on purpose: a proxy that loses answers and cuts connections, and runs that count the damage.

It knows Kafka's wire protocol well enough to tell an answer to Produce from any other, and does not know semel: it
works in front of any broker that speaks the protocol.
"""
