"""Faults on purpose: a proxy that loses answers and cuts connections, and runs that let go wrong and count the damage.

It knows Kafka's wire protocol well enough to tell an answer to Produce from any other, and nothing of semel: it stands
in front of any broker that speaks the protocol.
"""
