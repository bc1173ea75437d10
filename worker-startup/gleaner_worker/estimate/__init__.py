"""How much a run will be, from a sample of its streams: tokens, shards, bytes and operations, before anything is computed."""
