/** Versions of the checkpoint of a job: which of them counts, what it costs, and what an attempt restores. */
import {checkpointEpochFolder, checkpointsFolder, ownFolder} from '../names.ts';
import {
  type CheckpointState,
  type CheckpointVersion,
  type HostVersion,
  NO_CHECKPOINT,
} from '../records/checkpoint.ts';
import type {Job, JobLease} from '../records/job.ts';
import {iso, msOf} from '../time.ts';

/** Difference that the clocks of two hosts may have. */
const CLOCKS_MS = 2_000;
const KEPT_PER_HOST = 3;
/** Time without a shared moment of the hosts, until the document says so. */
const APART_MS = 600_000;
/** A restore may take this long, and a byte rate that every host reaches. */
const RESTORE = {least_s: 60, most_s: 6 * 3_600, bytes_per_s: 50e6};
const DEFAULTS = {max_gb: 100, max_files: 10_000, every_s: 60};
/** Prices of Cloud Storage in a region: a gigabyte for a month, and a created object. */
const USD = {per_byte_ms: 0.02 / 1e9 / (730 * 3_600_000), per_object: 0.005 / 1000};
/** An attempt that fails so soon after its restore may have failed because of the restored state. */
const SOON_MS = 60_000;

export const stateOf = ({checkpoint_state}: Pick<Job, 'checkpoint_state'>) =>
  checkpoint_state ?? NO_CHECKPOINT;

/** The job after one host has stored a version. The version counts once those of all processes belong to one moment. */
export function withVersion(
  job: Job & {lease: JobLease},
  {index, processes}: {index: number; processes: number},
  version: HostVersion,
  now: number,
): Job {
  const before = stateOf(job).pending[index] ?? [];
  const isTold = before.some(each => each.version === version.version);
  const charged = withStorage(job, now, isTold ? 0 : version.objects);
  const state = stateOf(charged);
  const others = before.filter(each => each.version !== version.version);
  const own = [...others, version].sort((a, b) => a.version - b.version).slice(-KEPT_PER_HOST);
  const pending: CheckpointState['pending'] = {...state.pending, [index]: own};
  const parts = roundOf(pending, processes);
  if (!parts || !isNewer(parts, job.epoch, state.complete))
    return {
      ...charged,
      checkpoint_state: {...state, pending, problem: state.problem ?? apart(job, pending, processes, now)},
    };
  const all = Object.values(parts);
  const complete = {
    ...{epoch: job.epoch, at: iso(now), parts, bytes: all.reduce((sum, {bytes}) => sum + bytes, 0)},
    label: all.find(({label}) => label !== null)?.label ?? null,
  };
  const newer = Object.entries(pending).map(([index, versions]) => [
    index,
    versions.filter(each => each.version >= (parts[index]?.version ?? 0)),
  ]);
  const left: CheckpointState['pending'] = Object.fromEntries(newer);
  // Progress shows that the job does not kill its machines.
  const moved = {...state, complete, previous: state.complete, pending: left, problem: null};
  return {...charged, machine_failures: 0, checkpoint_state: moved};
}

/** The newest version of each host that all share a moment; undefined without one. */
function roundOf(
  pending: CheckpointState['pending'],
  processes: number,
): Record<string, HostVersion> | undefined {
  const indexes = Array.from({length: processes}, (_, index) => String(index));
  const moments = Object.values(pending).flat();
  for (const moment of moments.sort((a, b) => b.from_ms - a.from_ms || b.version - a.version)) {
    const parts = indexes.map(index =>
      pending[index]?.findLast((each, _, all) =>
        each === moment
          ? processes === 1 || isClear(each, all)
          : isClear(each, all) && isTrueAt(each, moment),
      ),
    );
    if (parts.every(part => part !== undefined))
      return Object.fromEntries(parts.map((part, index) => [String(index), part]));
  }
  return undefined;
}

/** A label that is empty, or that a host has given twice, says nothing about the moment. `all`: the versions of its host. */
function isClear({label}: HostVersion, all: readonly HostVersion[]): boolean {
  return label === null || (label !== '' && all.filter(each => each.label === label).length === 1);
}

function isTrueAt({label, from_ms, until_ms}: HostVersion, moment: HostVersion): boolean {
  if (label !== null) return label === moment.label;
  const isOpen = moment.label !== null || moment.from_ms + CLOCKS_MS <= moment.until_ms;
  return isOpen && from_ms <= moment.from_ms && moment.from_ms + CLOCKS_MS <= until_ms;
}

/** False for what the attempt restored, for the version that counts already, and for an older one, as after a clock was set back. */
function isNewer(
  parts: Record<string, HostVersion>,
  epoch: number,
  complete: CheckpointVersion | null,
): boolean {
  if (!Object.values(parts).some(({is_new}) => is_new)) return false;
  if (complete?.epoch !== epoch) return true;
  const steps = Object.entries(parts).map(
    ([index, {version}]) => version - (complete.parts[index]?.version ?? 0),
  );
  return steps.some(step => step > 0) && steps.every(step => step >= 0);
}

/** Why no version of several hosts counts, although each stores some. */
function apart(job: Job, pending: CheckpointState['pending'], processes: number, now: number): string | null {
  const since = job.checkpoint_state?.complete?.at ?? '';
  const from = job.started_at !== null && job.started_at > since ? job.started_at : since;
  const isEach = Object.keys(pending).length === processes && processes > 1;
  const isNew = Object.values(pending).some(versions => versions.some(({is_new}) => is_new));
  if (!isEach || !isNew || from === '' || now - msOf(from) < APART_MS) return null;
  return `the hosts have shared no quiet moment since ${from}: save together, or name moments by .save with a label`;
}

/** The state without its newest version, which cannot be restored. */
export function withoutComplete(state: CheckpointState | null): CheckpointState | null {
  return state?.previous ? {...state, complete: state.previous, previous: null} : state;
}

export function withProblem(job: Job, problem: string, now: number): Job {
  return {...job, checkpoint_state: {...stateOf(job), problem}, updated_at: iso(now)};
}

/** The job with the cost of its versions up to now, and of the objects that were written. */
export function withStorage(job: Job, now: number, objects = 0): Job {
  const {checkpoint_state: state} = job;
  if (state === null && objects === 0) return job;
  const {complete, previous, charged_at, storage_usd, ...rest} = stateOf(job);
  const ms = charged_at === null ? 0 : Math.max(0, now - msOf(charged_at));
  const bytes = (complete?.bytes ?? 0) + (previous?.bytes ?? 0);
  const usd = bytes * ms * USD.per_byte_ms + objects * USD.per_object;
  const charged = {complete, previous, charged_at: iso(now), storage_usd: storage_usd + usd};
  return {...job, spent_usd: job.spent_usd + usd, checkpoint_state: {...rest, ...charged}};
}

/** The state at the start of an attempt, which restores the last version. */
export function atStart(job: Job): CheckpointState {
  const state = stateOf(job);
  return {...state, pending: {}, restored_at: state.complete?.at ?? null, problem: null};
}

/** Longest time for the restore of this version. */
export function restoreSeconds(version: CheckpointVersion | null): number {
  if (version === null) return 0;
  return Math.min(RESTORE.most_s, RESTORE.least_s + version.bytes / RESTORE.bytes_per_s);
}

/**
 * The state after a failure of the job's own. Two attempts that fail soon after the restore of one version suggest that its state is at fault:
 * the version before it comes next, once.
 */
export function afterFailure({checkpoint_state: state, attempts}: Job): CheckpointState | null {
  const isSoon = ({outcome, restored_at, started_at, ended_at}: Job['attempts'][number]) =>
    outcome === 'failed' &&
    restored_at !== null &&
    restored_at === state?.complete?.at &&
    msOf(ended_at) - msOf(started_at) < SOON_MS + restoreSeconds(state.complete) * 1000;
  const last = attempts.slice(-2);
  if (!state?.previous || last.length < 2 || !last.every(isSoon)) return state;
  const {at} = state.previous;
  const problem = `two attempts failed soon after the restore of ${state.complete?.at}, so the next one restores the version of ${at}`;
  return {...state, complete: state.previous, previous: null, problem};
}

/** Folder in the bucket for what the program saves itself: another one after each retry with an empty checkpoint. */
export function ownUrl(job: Job, checkpoints_bucket: string): string {
  const {own_epoch} = stateOf(job);
  const fresh = own_epoch === 0 ? '' : `/fresh_${own_epoch}`;
  return `gs://${checkpoints_bucket}/${ownFolder(job.job).slice(0, -1)}${fresh}`;
}

/** The part of an order by which the agents restore and store versions. */
export function checkpointOrder(job: Job, checkpoints_bucket: string) {
  const {complete, previous} = stateOf(job);
  const given = Object.fromEntries(
    Object.entries(job.checkpoint ?? {}).filter(([, value]) => value !== null),
  );
  return {
    ...{bucket: checkpoints_bucket, folder: checkpointsFolder(job.job), ...DEFAULTS, ...given},
    versions: [complete, previous].flatMap(version => (version ? restoreOrder(job.job, version) : [])),
  };
}

function restoreOrder(job: string, version: CheckpointVersion) {
  const {epoch, at, label, parts} = version;
  const manifests = Object.entries(parts).map(([index, part]) => [
    index,
    {object: manifestObject(job, epoch, index, part.version), digest: part.digest},
  ]);
  return {at, label, restore_s: restoreSeconds(version), parts: Object.fromEntries(manifests)};
}

export function manifestObject(job: string, epoch: number, index: string, version: number): string {
  return `${checkpointEpochFolder(job, epoch)}host_${index}/${String(version).padStart(6, '0')}/manifest.json`;
}
