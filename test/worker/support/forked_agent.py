"""An agent in a forked process. hold_at: it computes so many samples, and then waits until its extraction must end."""

import os
import time

import jax

from gleaner_worker.agent import agent
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.jobs import output
from gleaner_worker.model.files import download


def run(hold_at):
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])  # which the parent read before the fork
    output.EVERY_S = 0.1  # a test waits for the first output of a job
    download.ANSWER_S = 2.0  # a test waits for the first report of a silent hub
    if hold_at is not None:
        _hold_at(hold_at)
    return agent.main()


def _hold_at(most):
    count = ExtractionState.add_done

    def count_and_hold(control, samples, tokens):
        count(control, samples, tokens)
        while control.mode == "run" and control.samples_done >= most:
            time.sleep(0.02)

    ExtractionState.add_done = count_and_hold
