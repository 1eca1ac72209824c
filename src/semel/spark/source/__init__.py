"""The source: `spark.readStream.format("semel")` and `spark.read.format("semel")`, from the log into Arrow batches.

Columns and options are those of Spark's own Kafka source. The offsets in Spark's checkpoint are the authority on what
has been read; nothing here may keep a second account of it.
"""
