"""The stored shards of a stream, compared with the plan. The bucket decides which work is done."""

from concurrent.futures import ThreadPoolExecutor

from gleaner_reader.run.formats import read_facts

from ..failures import Failure
from ..model.model import Model
from ..names import parse_shard
from ..spec.work import Work
from ..storage.objects import Bucket, ObjectInfo
from .plan import ShardPlan
from .shard_identity import disagreement, is_of_lease, shard_identity

_PARALLEL = 16


class ExistingShards:
    """The counted shards of a stream, and those of this lease. The control plane sets other objects aside."""

    def __init__(self, work: Work, model: Model, bucket: Bucket):
        self._work, self._bucket = work, bucket
        self._fingerprint = model.fingerprint
        self._objects: dict[int, ObjectInfo] = {}  # by shard number
        for info in bucket.list(work.output_prefix):
            parsed = parse_shard(work.output_prefix, info.name)
            if not parsed or parsed[1] != work.spec.format:
                continue
            is_counted = parsed[0] <= work.stored_shards or parsed[0] in work.kept_shards
            if is_counted or is_of_lease(work, info.name, info.metadata):
                self._objects[parsed[0]] = info

    def __contains__(self, number: int) -> bool:
        """Whether the bucket has a shard of this number."""
        return number in self._objects

    def find(self, plan: ShardPlan) -> ObjectInfo | None:
        """The stored shard of this plan, or None. Raises Failure("stream") for a stored shard of another plan."""
        if plan.final and (later := sorted(n for n in list(self._objects) if n > plan.number)):
            raise self._conflict(f"{self._objects[later[0]].name} exists, but the stream ends with shard {plan.number}")
        info = self._objects.get(plan.number)
        if info:
            self.accept(plan, info)
        return info

    def accept(self, plan: ShardPlan, info: ObjectInfo) -> None:
        """Records `info` as the shard of `plan`. Raises Failure("stream") when its metadata contradict the plan."""
        identity = shard_identity(self._work, plan, self._fingerprint)
        if problem := disagreement(identity, info.metadata):
            raise self._conflict(
                f"{info.name} was made with {problem}", info if plan.number > self._work.stored_shards else None
            )
        self._objects[plan.number] = info

    def add_facts(self, entries: list[dict]) -> list[dict]:
        """Returns the entries, each with the facts of its header. An entry without them gets those of its shard."""
        with ThreadPoolExecutor(_PARALLEL, "facts") as pool:
            return list(pool.map(lambda entry: entry if "stats" in entry else self._with_facts(entry), entries))

    def _with_facts(self, entry: dict) -> dict:
        info = self._objects[entry["shard_id"]]

        def read(begin: int, end: int) -> bytes:
            return self._bucket.read_range(info.name, info.generation, begin, min(end, info.size_bytes))

        try:
            return entry | read_facts(read, info.size_bytes, self._work.spec.format)
        except (ValueError, FileNotFoundError) as error:
            raise self._conflict(f"{info.name} lacks its statistics ({error!r})") from error

    def _conflict(self, cause: str, uncounted: ObjectInfo | None = None) -> Failure:
        """uncounted: a shard that does not count yet, so that the control plane may set it aside."""
        work = self._work
        return Failure(
            "stream",
            f"Failed to resume {work.object}: {cause}; no shard is overwritten: restore the stream, model and spec of "
            f"these shards, or move {work.output_prefix} away to start this stream again",
            {"object": uncounted.name, "found": cause[:200], "made": "a shard of this plan"} if uncounted else None,
        )
