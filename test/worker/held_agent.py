"""An agent that computes SAMPLES samples and then waits until its extraction must end: `held_agent.py SAMPLES`."""

import os
import sys
import time

import environment  # noqa: F401  (before the rest)
from gleaner_worker import agent
from gleaner_worker.control import Control

count = Control.add_done


def count_and_hold(control, samples, tokens):
    count(control, samples, tokens)
    while control.mode == "run" and control.samples_done >= int(sys.argv[1]):
        time.sleep(0.02)


if __name__ == "__main__":
    Control.add_done = count_and_hold
    os._exit(agent.main())
