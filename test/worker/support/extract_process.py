"""An extractor in a forked process, for tests that kill it."""

import importlib
import os
import signal

from build import a_model, bucket, parse_work, settings_of
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


def run(answer, folder, kill=None, nth=1, after=False, flush_at=None):
    """Prints the outcome. answer: of worker-api. kill: "module:Class.function" whose nth call ends this process."""
    control = ExtractionState()
    if flush_at:
        wrap("extract.extract:put_samples", after=at_call(flush_at, lambda: control.request("flush")))
    if kill:
        die = at_call(nth, lambda: os.kill(os.getpid(), signal.SIGKILL))
        wrap(kill, **{"after" if after else "before": die})
    work = parse_work(answer["lease"], answer["work"])
    model = a_model(work.spec, folder, bucket(), work.run)
    scratch = f"{folder}/scratch"
    print(extract_module.extract(work, model, settings_of(model), bucket(), scratch, control), flush=True)
