"""Kafka's protocol as bytes: encodes and decodes messages, without a socket and without a rule.

`frames` divides a stream into requests and writes the headers of answers, `produce` and `fetch` are the codecs of the
two hot paths, `messages` uses kio for all other APIs, `records` reads and writes record batches for the command line
and the tests, and `versions` is the table of announced versions. This room must never decide anything.
"""
