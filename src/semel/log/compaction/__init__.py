"""Compaction: the only place that decompresses record batches to rewrite them."""
