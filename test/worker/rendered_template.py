"""Records written with record.template."""

from build import a_spec
from gleaner_worker.records.prompts import make_prompt_writer, render_prompts, write_prompts
from gleaner_worker.records.reject_reason import RejectReason


def write(template, record, **changes):
    """The prompt of the record, or the reason that rejects it. Raises LimitExceeded."""
    writer = make_prompt_writer(a_spec(record={"template": template} | changes), "/nowhere")
    prompts = write_prompts(record, writer)
    if isinstance(prompts, RejectReason) or isinstance(prompt := next(prompts), RejectReason):
        return prompts if isinstance(prompts, RejectReason) else prompt
    return render_prompts([prompt])[0]
