"""From a plan of samples to stored shards."""
