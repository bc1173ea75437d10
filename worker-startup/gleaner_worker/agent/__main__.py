"""Runs the agent of a TPU VM: `python -m gleaner_worker.agent`."""

import os

from .agent import main

status = main()
# Threads may still wait for a device or a socket. This exit does not wait for them.
os._exit(status)
