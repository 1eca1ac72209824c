"""Compaction: the one place that opens record batches in order to rewrite them."""
