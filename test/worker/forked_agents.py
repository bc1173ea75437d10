"""Agents forked from one process that has imported JAX: each line on stdin starts an agent, after the end of the last.

{"environment": all variables, "stderr": path of a pipe, "hold_at": null}
hold_at: the agent computes so many samples, and then waits until its extraction must end.
"""

import os
import time

import environment  # noqa: F401  (before the rest)
from forks import fork_each_line
from gleaner_worker.agent import agent
from gleaner_worker.extract.state import ExtractionState
from gleaner_worker.jobs import output
from gleaner_worker.model import download

output.EVERY_S = 0.1  # a test waits for the first output of a job
download.FIRST_TIMEOUT_S = 1.0  # a test waits for the first report of a silent hub


def hold_at(most):
    count = ExtractionState.add_done

    def count_and_hold(control, samples, tokens):
        count(control, samples, tokens)
        while control.mode == "run" and control.samples_done >= most:
            time.sleep(0.02)

    ExtractionState.add_done = count_and_hold


def run(order):
    os.environ.clear()
    os.environ.update(order["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    pipe = os.open(order["stderr"], os.O_WRONLY)
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    os.close(pipe)
    if order["hold_at"] is not None:
        hold_at(order["hold_at"])
    return agent.main()


if __name__ == "__main__":
    fork_each_line(run)
