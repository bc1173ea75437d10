/** Valid documents of each kind, with the changes of a test. */

import {hash} from 'node:crypto';
import {type Config, loadConfig} from '../../shared/contracts/settings/config.ts';
import {secretHash} from '../../shared/control-plane/worker-api/authenticate.ts';
import {labelsOf} from '../../shared/domain/deployment.ts';
import type {WantedOptions} from '../../shared/domain/fleet/slots.ts';
import {parseWorkerName, shardObject} from '../../shared/domain/names.ts';
import {defaultsOf} from '../../shared/domain/records/field.ts';
import {newRun, type Run} from '../../shared/domain/records/run.ts';
import {NOTHING_STORED, type Shard} from '../../shared/domain/records/shard.ts';
import {runSettings} from '../../shared/domain/records/spec-keys.ts';
import {newStream, type Stream} from '../../shared/domain/records/stream.ts';
import {newWorker, type Worker} from '../../shared/domain/records/worker.ts';
import type {Stats} from '../../shared/domain/run/result.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Limits} from '../../shared/domain/worker/limits.ts';
import type {FoundNode} from '../../shared/domain/worker/observation.ts';
import type {Moment} from '../../shared/domain/worker/served-time.ts';
import type {Tpu} from '../../shared/ports/ports.ts';
import {secretOf} from './bus.ts';

/** The beginning of every test. */
export const T0 = Date.parse('2026-01-02T03:04:05.000Z');
export const SPEC_HASH = 'a'.repeat(64);
export const CRC = 'AAAAAA==';

/** An instant so many seconds after the beginning. */
export function at(seconds: number): string {
  return iso(T0 + seconds * 1000);
}

export function aStream(changes: Partial<Stream> = {}): Stream {
  const content = {
    object: 'datasets/my-run/stream_007.jsonl',
    generation: '1000',
    size_bytes: 100,
    crc32c: CRC,
  };
  return {...newStream('my-run', 7, content, {bucket: 'bucket', model: 'tiny', now: T0}), ...changes};
}

export function aLeasedStream(changes: Partial<Stream> = {}): Stream {
  return aStream({
    status: 'in_progress',
    epoch: 3,
    lease: {worker: 'tpu-us-central1-a-0', incarnation: 2, epoch: 3},
    ...changes,
  });
}

export function aRun(changes: Partial<Run> = {}): Run {
  const placement = {...defaultsOf(runSettings), pool: 'tpu'};
  return {...newRun('my-run', placement, T0), spec: {model: 'tiny'}, spec_hash: SPEC_HASH, ...changes};
}

/** A worker of the slot of its name, in its second incarnation, whose first host has said hello. */
export function aWorker(changes: Partial<Worker> = {}): Worker {
  const name = changes.name ?? 'tpu-us-central1-a-0';
  const slot = parseWorkerName(name);
  if (!slot) throw new Error(`${name} is no worker name`);
  const {incarnation = 2} = changes;
  const host_secrets = {0: secretHash(secretOf(name, incarnation))};
  return {...newWorker(name, slot, T0), phase_since_at: at(0), incarnation, host_secrets, ...changes};
}

/** An observation of a slot: the node of `aWorker` in this state and no queued resource. */
export function found(state: string | null, changes: Partial<FoundNode> = {}): FoundNode {
  const node = {state, health: 'HEALTHY', symptoms: [], queued: null, incarnations: [2], created_at: at(0)};
  return {kind: 'found', ...node, ...changes};
}

/** The node of `aWorker` in a list of TPUs. */
export function aTpu(changes: Partial<Tpu> = {}): Tpu {
  const labels = {...labelsOf('gleaner'), 'gleaner-pool': 'tpu', 'gleaner-incarnation': '2'};
  return {
    ...{name: 'tpu-us-central1-a-0', zone: 'us-central1-a', state: 'READY', health: 'HEALTHY', labels},
    ...{symptoms: [], queued: null, created_at: at(0), ...changes},
  };
}

/** Shard `shard` of stream my-run/007, with nine samples and a rejected one. */
export function aShard(shard: number, changes: Partial<Shard> = {}): Shard {
  return {
    shard,
    epoch: 1,
    object: shardObject('my-run', '007', shard, 'safetensors'),
    first_sample: (shard - 1) * 10,
    last_sample: shard * 10 - 1,
    samples: 9,
    rejected: 1,
    tokens: 100,
    sha256: hash('sha256', String(shard)),
    spec_hash: SPEC_HASH,
    stream_crc32c: CRC,
    proof: null,
    final: false,
    size_bytes: 1000,
    stored_at: at(0),
    ...changes,
  };
}

/** Statistics of rows without zeros, of pools: they have no positions. */
export function aStats(changes: Partial<Stats> = {}): Stats {
  const ofRows = {
    zeros: 0,
    norm_quantiles: [1, 1, 1, 1, 1] as Stats['norm_quantiles'],
    max_abs_by_position: [],
  };
  return {mean: 0, norm: 1, max_abs: 1, non_finite: 0, ...ofRows, ...changes};
}

/** The custom metadata of shard 1 of stream my-run/007, as its object has it. */
export function shardMetadataOf(changes: Record<string, string> = {}): Record<string, string> {
  return {
    schema: 'gleaner/1',
    run: 'my-run',
    stream: '007',
    shard: '1',
    epoch: '1',
    first_sample: '0',
    last_sample: '9',
    samples: '9',
    rejected: '1',
    tokens: '100',
    spec_hash: SPEC_HASH,
    stream_crc32c: CRC,
    sha256: hash('sha256', '1'),
    final: 'true',
    ...changes,
  };
}

/** A moment without any outage of worker-api before it. */
export function moment(now: number): Moment {
  return {now, servedTime: {proven_at: iso(now), gaps: [], failed_pings: 0, failing_since_at: null}};
}

/** The settings that have no default, and those that a function asks for where it uses them. */
export const ENVIRONMENT = {
  GLEANER_PROJECT: 'project',
  GLEANER_BUCKET: 'bucket',
  GLEANER_WORKER_API: 'http://127.0.0.1:1/worker-api',
  GLEANER_BUNDLE: 'c'.repeat(64),
  GLEANER_WORKER_SERVICE_ACCOUNT: 'gleaner-worker@project.iam.gserviceaccount.com',
  GLEANER_CONTROL_SERVICE_ACCOUNT: 'gleaner-control@project.iam.gserviceaccount.com',
  GLEANER_TICKET_KEY: 'k'.repeat(32),
};

export function aConfig(set: Record<string, string> = {}): Config {
  return loadConfig({...ENVIRONMENT, ...set});
}

export const FROZEN = {spec_hash: SPEC_HASH, format: 'safetensors'};
export const ORIGIN = {...FROZEN, stream_crc32c: CRC};
export {NOTHING_STORED};

/** Seconds; the limits of most tests of a slot. */
export const LIMITS: Limits = {
  create_s: 900,
  boot_s: 600,
  setup_s: 1800,
  silent_s: 240,
  stall_s: 600,
  compile_s: 900,
  load_s: 3600,
  drain_s: 900,
  ask_again_s: 180,
  repair_s: 900,
  retry_s: 300,
};

/** Nothing keeps a slot from a TPU. */
export const FREE: WantedOptions = {
  ...{blocked: new Map(), allowances: new Map(), bound: new Set(), most: Infinity},
  ...{canaries: new Map(), limited: new Set(), silent: new Set()},
};
