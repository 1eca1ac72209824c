"""The sink into the log: exactly once into Kafka or semel, by lanes and markers. docs/explanation/lanes.md says how.

The claim is (sink, lane, batch); it commits in the transaction of the records. `protocol` decides and knows no IO,
`lane` does one attempt, `writer` is what Spark calls.
"""
