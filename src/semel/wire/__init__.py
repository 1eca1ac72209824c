"""Kafka's protocol as bytes: encodes and decodes messages, without sockets and without rules.

`frames` divides a stream into requests and writes the headers of answers, `produce` and `fetch` are the codecs of the
two hot paths, `messages` uses kio for all other APIs, `records` reads and writes record batches for the command line
and the tests, and `versions` is the table of announced versions. This package must never decide anything.
"""
