"""Records written with record.template."""

from build import a_spec
from gleaner_worker.records.prompts import make_prompt_writer, render_prompts, write_prompts
from gleaner_worker.records.rejected import Rejected


def write(template, record, **changes):
    """The prompt of the record, or the reason that rejects it. Raises LimitExceeded."""
    writer = make_prompt_writer(a_spec(record={"template": template} | changes), "/nowhere")
    try:
        return render_prompts([next(write_prompts(record, writer))])[0]
    except Rejected as reason:
        return reason
