"""Sinks for the rows of a micro-batch: into databases, into Delta and Iceberg, or into several sinks at once.

Each keeps the claim of a batch where its rows are, and commits both at once. No sink knows another one, and none may
report a batch as written before its commit has succeeded.
"""
