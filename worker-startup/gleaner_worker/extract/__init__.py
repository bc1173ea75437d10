"""The extraction of a stream: from its file to stored shards."""
