"""Records written with record.template."""

from build import a_spec
from gleaner_worker.records.lines.rejected import Rejected
from gleaner_worker.records.samples.prompts import make_prompt_writer, write_prompts


def write(template, record, **changes):
    """The prompt of the record, or the reason that rejects it."""
    writer = make_prompt_writer(a_spec(record={"template": template} | changes), "/nowhere")
    try:
        return next(write_prompts(record, writer))
    except Rejected as reason:
        return reason
