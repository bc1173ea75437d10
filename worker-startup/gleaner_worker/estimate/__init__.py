"""Estimates the tokens, shards, bytes and operations of a run from a sample of its streams."""
