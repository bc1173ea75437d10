"""Records written with record.template."""

from build import a_spec
from gleaner_worker.records.prompts import make_prompt_writer, write_prompts
from gleaner_worker.records.reject_reason import RejectReason


def write(template, record, **changes):
    writer = make_prompt_writer(a_spec(record={"template": template} | changes), "/nowhere")
    prompts = write_prompts(record, writer)
    return prompts if isinstance(prompts, RejectReason) else next(prompts)
