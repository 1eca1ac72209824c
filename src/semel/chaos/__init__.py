"""Deliberate faults: a proxy that loses answers and cuts connections, and runs that count the damage.

The proxy parses just enough of Kafka's protocol to recognise the answers to Produce, and does not depend on semel: it
works in front of any broker that speaks the protocol.
"""
