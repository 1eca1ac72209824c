"""Sinks for the rows of a micro-batch: SQL and Delta, and several of them over one batch.

Each keeps the claim of a batch where its rows are, and commits both at once. None of them knows another, and none may
say that a batch is in before its commit has said so.
"""
