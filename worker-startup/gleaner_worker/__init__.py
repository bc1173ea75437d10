"""What runs on a TPU VM: the agent that leases streams, and the JAX extractor that turns them into shards."""
