"""Verifies a run: reads its streams and shards again, and checks that each sample is stored exactly once."""
