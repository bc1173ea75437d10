"""Work on streams: the model in memory, and the extraction of one leased stream."""

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace

from ..extract.extract import extract
from ..extract.state import ExtractionState
from ..extract.upload_streams import UploadStreams
from ..failures import Interrupted, OutOfMemory
from ..model.files.hub import worker_hub
from ..model.files.model_source import read_config
from ..model.model import Model, find_files, load_model
from ..records.samples.sample_settings import SampleSettings
from ..records.samples.tokenize_process import limited_settings
from ..spec.spec import Spec
from ..spec.work import Work, parse_work
from ..storage.downloads import Downloads
from ..storage.objects import Bucket
from .api import WorkerApi
from .metadata import Identity

log = logging.getLogger(__name__)


class StreamWork:
    """Extracts leased streams, one after another. Keeps the model and the tokenizer's processes between streams."""

    def __init__(self, identity: Identity, open_bucket: Callable[[dict], Bucket], api: WorkerApi, downloads: Downloads):
        self.identity, self.open_bucket, self.api, self.downloads = identity, open_bucket, api, downloads
        self.model: Model | None = None
        self.settings: SampleSettings | None = None
        self.streams = UploadStreams()
        self.loaded: dict | None = None  # as worker-api receives it
        self.loaded_for: tuple[str, Spec] | None = None
        self.out_of_memory: tuple[str, Spec] | None = None  # the run whose first layout was too large

    def run(self, lease: dict, raw_work: dict, state: ExtractionState) -> str:
        """Returns the outcome of the release. Raises Failure, and LeaseLost when the lease is lost."""
        work = parse_work(lease, raw_work)
        bucket = self.open_bucket(lease).checked(state.check_lease)
        # One folder per lease: an upload of a lost lease never meets the files of the next lease.
        folder = os.path.join(self.identity.home, "work", f"{work.run}-{work.stream}-e{work.epoch}")
        try:
            try:
                return self._extract(work, bucket, folder, state, lease)
            except OutOfMemory as error:
                # Where no copy of the weights can be on more chips, the same program has another try.
                if self.out_of_memory == (work.run, work.spec):
                    raise
                log.warning("%s; beginning again with each copy of the weights on more chips", error)
                self.out_of_memory, self.loaded_for = (work.run, work.spec), None
                state.restart()
                return self._extract(work, bucket, folder, state, lease)
        except Interrupted:
            return "drained" if state.mode == "drain" else "preempted"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _extract(self, work: Work, bucket: Bucket, folder: str, state: ExtractionState, lease: dict) -> str:
        model, settings = self._load(work, bucket, state, lease)
        return extract(work, model, settings, bucket, folder, state, self.streams)

    def _load(self, work: Work, bucket: Bucket, state: ExtractionState, lease: dict) -> tuple[Model, SampleSettings]:
        """Keeps the model between streams of one run, and its weights for other runs that use the same weights."""
        if self.loaded_for != (work.run, work.spec):
            state.phase = "loading"
            previous, self.model, self.loaded, self.loaded_for = self.model, None, None, None
            hub = worker_hub(self.identity.hf_endpoint, lambda check: self.api.secrets(lease, check).get("hub"))
            hub = replace(hub, report=state.set_waits_for, received=self.downloads.add_from_hub)
            source = bucket.checked(state.check_running, self.downloads)
            files = find_files(work.spec, self.identity.home, source, work.run, hub)
            config, _ = read_config(work.spec, files.folder)
            # Before the weights, which take minutes: a tokenizer that cannot be used fails at once.
            if self.settings:
                self.settings.close()
            self.settings = limited_settings(files.folder, work.spec, config.vocab_size, config.max_positions)
            self.model = load_model(
                work.spec,
                files,
                log.info,
                previous,
                phase=lambda name: setattr(state, "phase", name),
                skipped=1 if self.out_of_memory == (work.run, work.spec) else 0,
            )
            self.loaded = {"model": work.spec.model, "spec_hash": work.spec_hash}
            self.loaded_for = (work.run, work.spec)
            log.info("Loaded %s (%s)", work.spec.model, self.model.fingerprint)
        assert self.model is not None and self.settings is not None
        return self.model, self.settings
