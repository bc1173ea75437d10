"""The work of a process that tokenises lines, within limits; tokenize_process.py starts it."""

from collections.abc import Callable
from dataclasses import asdict

from ...limited import step
from ...limited.frames import Frame
from ...limited.values import from_json
from ...spec.spec import Spec
from ..chat import template
from .tokenize_frames import frame_of_documents, lines_of_frame
from .tokenize_lines import make_sample_settings, tokenize_lines


def warm_up() -> None:
    template.warm_up()


def open_tokenizer(facts: dict) -> Callable[[Frame], Frame]:
    """facts: the arguments of make_sample_settings. Returns the function that answers the frames of tokenize_frames.py.
    Raises Failure("model")."""
    settings = make_sample_settings(**facts | {"spec": from_json(Spec, facts["spec"])})

    def answer(request: Frame) -> Frame:
        if "first" in request.facts:
            return frame_of_documents(tokenize_lines(lines_of_frame(request), request.facts["name"], settings))
        if "token_ids" in request.facts:
            step.begin("model", f"decode token ids with tokenizer.json of {settings.model}", "use another model")
            ids = request.facts["token_ids"]
            return Frame({"texts": settings.texts(ids)} if "each" in request.facts else {"text": settings.decode(ids)})
        return Frame(asdict(settings.facts))

    return answer
