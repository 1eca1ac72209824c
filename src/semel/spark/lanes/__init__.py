"""The sink into the log: it writes exactly once into Kafka or semel, with lanes and markers. docs/explanation/lanes.md
explains how.

The claim is (sink, lane, batch); it commits in the transaction of the records. `protocol` decides without IO, `lane`
makes one attempt, and Spark calls `writer`.
"""
