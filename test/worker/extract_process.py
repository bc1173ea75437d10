"""Extractors in processes of their own, for tests that kill them: each line on stdin forks one.

{"storage": URL, "answer": of worker-api, "folder",
"kill": "module:Class.function", "nth": 1, "after": false, "flush_at": 3}
"""

import importlib
import os
import signal

import environment  # noqa: F401  (before the rest)
from build import a_model, bucket, parse_work, settings_of
from forks import fork_each_line
from gleaner_worker.extract import extract as extract_module
from gleaner_worker.extract.state import ExtractionState


def wrap(path, before=lambda: None, after=lambda: None):
    """Calls `before` and `after` around the function at `path`, or around each item of a generator."""
    module, _, name = path.partition(":")
    owner = importlib.import_module(f"gleaner_worker.{module}")
    *classes, name = name.split(".")
    for part in classes:
        owner = getattr(owner, part)
    real = getattr(owner, name)

    def each(items):
        for item in items:
            before()
            yield item
            after()

    def wrapped(*arguments, **more):
        if name in ("read_documents", "make_samples"):
            return each(real(*arguments, **more))
        before()
        result = real(*arguments, **more)
        after()
        return result

    setattr(owner, name, wrapped)


def at_call(nth, act):
    calls = []

    def count():
        calls.append(None)
        if len(calls) == nth:
            act()

    return count


def run(order):
    os.environ["STORAGE_EMULATOR_HOST"] = order["storage"]
    control = ExtractionState()
    if order.get("flush_at"):
        wrap("extract.extract:put_sample", after=at_call(order["flush_at"], lambda: control.request("flush")))
    if order.get("kill"):
        die = at_call(order["nth"], lambda: os.kill(os.getpid(), signal.SIGKILL))
        wrap(order["kill"], **{"after" if order.get("after") else "before": die})
    work = parse_work(order["answer"]["lease"], order["answer"]["work"])
    model = a_model(work.spec, order["folder"], bucket(), work.run)
    print(
        extract_module.extract(work, model, settings_of(model), bucket(), order["folder"] + "/scratch", control),
        flush=True,
    )


if __name__ == "__main__":
    fork_each_line(run)
