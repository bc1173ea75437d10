"""The software of a TPU VM: the agent that leases streams, and the JAX extractor that turns streams into shards."""
