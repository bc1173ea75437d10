"""Agents on a VM that is preempted."""

import signal
import threading

import pytest

from agent_process import LONG, ended, preempt, release_of, running
from build import BUCKET, a_stream, a_work_answer, outputs, shard_gb
from waiting import HANG_S

pytestmark = pytest.mark.slow


@pytest.mark.sample(1)
@pytest.mark.parametrize("notice", ["SIGTERM", "metadata", "metadata, without a reader of the log"])
def test_a_preempted_vm_saves_computed_samples_and_the_next_worker_continues(
    extract, cloud, storage, agent, tiny_folder, notice
):
    resource = a_stream(storage, LONG[:800])
    cloud.leases = [a_work_answer(resource, model=tiny_folder)]
    process = agent(hold_at=200)
    cloud.wait(lambda asked: running(asked, 200))
    preempt(cloud, process, notice)
    if "reader" in notice:
        process.stderr.close()
        process.stderr = None
    ended(process)
    assert release_of(cloud) == ("preempted", None)
    partials = storage.names(BUCKET, "partials/")
    assert partials and all(name.startswith("partials/my-run/tpu_7/shard_0001.e1.s") for name in partials)
    assert outputs(storage) == {}
    computed = cloud.releases()[0]["progress"]["samples_done"]
    assert 200 <= computed < 800
    cloud.preempted = False
    cloud.leases = [a_work_answer(resource, epoch=2, model=tiny_folder)]
    ended(agent())
    assert release_of(cloud, 1) == ("completed", None)
    done = outputs(storage)
    storage.objects = {key: value for key, value in storage.objects.items() if key[1].startswith("datasets/")}
    extract(resource)
    assert outputs(storage) == done


@pytest.mark.long
def test_an_agent_on_a_preempted_vm_exits_while_uploads_hang(cloud, storage, agent, tiny_folder):
    """Uploads of the first four shards hang; the later shards are stored."""
    held, hanging = threading.Event(), [f"activations/my-run/tpu_7/shard_000{n}.safetensors" for n in range(1, 5)]
    storage.before_create = lambda name: held.wait(HANG_S) if name in hanging else None
    work = a_work_answer(a_stream(storage, LONG), shard_size_gb=shard_gb(4000), model=tiny_folder)
    cloud.leases = [work]
    process = agent()
    cloud.wait(lambda asked: any(a.get("phase") == "uploading" for a in asked))  # memory is full
    process.send_signal(signal.SIGTERM)
    ended(process)
    assert release_of(cloud) == ("preempted", None)
    shards = [name for name in outputs(storage) if name.startswith("shard_")]
    partials = {name.split("/")[-1][:10] for name in storage.names(BUCKET, "partials/")}
    held.set()
    assert {name[:10] for name in shards} | partials == {"shard_0005", "shard_0006"}
