"""The objects with the generated tokens of a stream, as JSON lines beside its shards.

The first attempt that stores a group decides its tokens. Every other attempt, and every verification, reads them.
"""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from ..failures import Failure
from ..names import generated_name, output_prefix
from ..records.samples.documents import Document
from ..records.samples.generated import Answer
from ..records.samples.sample_settings import SampleSettings
from ..spec.spec import Spec
from ..spec.work import Work
from ..storage.objects import Bucket, Contradicts, ObjectInfo
from ..storage.upload_content import BytesContent
from .plan import tokens_sha256
from .shard_identity import disagreement


class StoredAnswers:
    """Reads the answers of a group, or makes and stores them; an Answers of records/samples/generated.py.

    make: the new tokens of prompts; None for a reader. fingerprint: of the model, None where it is unknown.
    """

    def __init__(
        self,
        work: Work,
        bucket: Bucket,
        fingerprint: str | None,
        settings: SampleSettings,
        make: Callable[[list[np.ndarray]], list[np.ndarray]] | None = None,
    ):
        self._work, self._bucket, self._fingerprint, self._settings = work, bucket, fingerprint, settings
        self._make = make

    def __call__(self, number: int, prompts: list[Document]) -> list[Answer] | None:
        """Raises Failure("stream") for stored answers that do not belong to the prompts."""
        name = generated_name(self._work.output_prefix, number)
        identity = self._identity(number, prompts)
        if self._bucket.head(name) is None:
            if self._make is None:
                return None
            self._store(name, identity, prompts, self._make([prompt.token_ids for prompt in prompts]))
        info = self._bucket.head(name)
        if info is None:
            raise self._conflict(name, "it was deleted")
        if problem := disagreement(identity, info.metadata):
            raise self._conflict(name, f"it was made with {problem}")
        try:
            return self._parse(self._bucket.read(name) or b"", prompts)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            cause = f"it is damaged: {str(error)[:150]}"
            raise self._conflict(name, cause, is_damaged=True) from error

    def _identity(self, number: int, prompts: list[Document]) -> dict[str, str]:
        work = self._work
        identity = {
            "schema": "gleaner/1",
            "stream": work.stream,
            "group": str(number),
            "prompts_sha256": tokens_sha256(prompts),
            "spec_hash": work.spec_hash,
            "stream_crc32c": work.crc32c,
        }
        return identity if self._fingerprint is None else identity | {"model_fingerprint": self._fingerprint}

    def _store(self, name: str, identity: dict[str, str], prompts: list[Document], made: list[np.ndarray]) -> None:
        lines = [
            {"sample_idx": prompt.index, "token_ids": tokens.tolist(), "text": self._settings.decode(tokens.tolist())}
            for prompt, tokens in zip(prompts, made, strict=True)
        ]
        data = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
        attempt = {"run": self._work.run, "epoch": str(self._work.epoch)}
        content_type, time = "application/x-ndjson", self._work.custom_time(datetime.now(UTC))
        with contextlib.suppress(Contradicts):  # the first answers count
            self._bucket.create(name, BytesContent(data), identity | attempt, content_type, time)

    def _parse(self, data: bytes, prompts: list[Document]) -> list[Answer]:
        lines = [json.loads(line) for line in data.decode().splitlines()]
        if [line["sample_idx"] for line in lines] != [prompt.index for prompt in prompts]:
            raise ValueError("it has other samples")
        most = self._settings.new_tokens
        for line in lines:
            ids, is_id = line["token_ids"], range(self._settings.vocab_size).__contains__
            if not 1 <= len(ids) <= most or not all(type(token) is int and is_id(token) for token in ids):
                raise ValueError(f"sample {line['sample_idx']} has other than 1 to {most} token ids")
            if not isinstance(line["text"], str):
                raise ValueError(f"sample {line['sample_idx']} has no text")
        return [Answer(np.array(line["token_ids"], np.int32), line["text"]) for line in lines]

    def _conflict(self, name: str, cause: str, is_damaged: bool = False) -> Failure:
        """is_damaged: nobody can read the object. The control plane sets it aside where no shard counts."""
        return Failure(
            "stream",
            f"Failed to continue {self._work.object} with gs://{self._bucket.name}/{name}: {cause}; restore the "
            f"stream, model and spec of the stored tokens, or move {self._work.output_prefix} away to start "
            "this stream again",
            {"object": name, "found": cause, "made": "the tokens of its prompts"}
            if is_damaged and not self._work.stored_shards
            else None,
        )


def stored_answers(
    bucket: Bucket, run: str, stream: str, info: ObjectInfo, frozen: tuple[Spec, str], settings: SampleSettings
) -> StoredAnswers:
    """Reads the answers of a stream. info: of its object. frozen: the spec of the run and its hash."""
    where = info.name, info.generation, info.crc32c, output_prefix(run, stream)
    return StoredAnswers(Work(run, stream, 0, bucket.name, *where, *frozen), bucket, None, settings)
