"""The agent of a TPU VM: asks worker-api for work, reports, and obeys its answers."""
