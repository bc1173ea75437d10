"""One leased stream, as worker-api describes it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from .read_spec import parse_spec
from .spec import Spec


@dataclass(frozen=True)
class Work:
    """A lease of a stream, and the objects and the spec to work with."""

    run: str
    stream: str  # "007"
    epoch: int
    bucket: str
    object: str
    generation: int
    crc32c: str
    output_prefix: str
    spec: Spec
    spec_hash: str
    lease_key: str = ""  # with which shards prove this lease
    stored_shards: int = 0  # shards that the control plane has counted
    kept_shards: frozenset[int] = frozenset()  # further shards that count, behind a gap
    expire_days: int | None = None  # after which the bucket deletes the outputs

    def custom_time(self, now: datetime) -> datetime | None:
        """The custom time of an output: the bucket deletes an object of activations/ a day after its custom time."""
        return None if self.expire_days is None else now + timedelta(days=self.expire_days - 1)


def parse_work(lease: dict, work: dict) -> Work:
    """Parses the answer to a lease request. Raises Failure("model") for a spec that this worker does not support."""
    return Work(
        run=work["run"],
        stream=work["stream"],
        epoch=int(lease["epoch"]),
        bucket=work["bucket"],
        object=work["dataset"]["object"],
        generation=int(work["dataset"]["generation"]),
        crc32c=work["dataset"]["crc32c"],
        output_prefix=work["output_prefix"],
        spec=parse_spec(work["spec"]),
        spec_hash=work["spec_hash"],
        lease_key=work["lease_key"],
        stored_shards=int(work["stored_shards"]),
        kept_shards=frozenset(work["kept_shards"]),
        expire_days=work.get("expire_days"),
    )
