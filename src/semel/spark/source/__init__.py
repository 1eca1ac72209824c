"""The source, `spark.readStream.format("semel")` and `spark.read.format("semel")`: it reads the log into Arrow batches.

Columns and options are those of Spark's own Kafka source. Only the offsets in Spark's checkpoint say what has been
read; nothing here may record it a second time.
"""
