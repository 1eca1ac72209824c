"""Bytes and messages: how Kafka's protocol lies on the wire, without a socket and without a rule.

`frames` cuts a stream into requests and dresses answers, `produce` and `fetch` are the codecs of the two hot paths,
`messages` is the glue to kio for all other APIs, `records` reads and writes record batches for the command line and
the tests, and `versions` is the table of what is announced. This room must never decide anything.
"""
