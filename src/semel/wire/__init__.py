"""What is said on the wire, and what a number means there: messages and batches as bytes, sequence numbers, errors.

`frames` divides a stream into requests and writes the headers of answers, `produce` and `fetch` are the codecs of the
two hot paths, and `messages` is that of all other APIs, whose messages are the classes in `kafka`. `records` reads and
writes record batches for the command line and the tests, and `versions` is the table of announced versions. `sequences`
has the rules by which a batch is new, a duplicate or late, for the broker and for the deduplication in Spark. This
package must never open a socket, nor import another one of semel.
"""
