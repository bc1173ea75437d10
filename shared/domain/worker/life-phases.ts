/** Splits the time of an incarnation into phases, from the heartbeats in its document. */
import {parseJobWork} from '../names.ts';
import type {LifeFields, Worker} from '../records/worker.ts';
import {msOf} from '../time.ts';
import type {Death} from './liveness.ts';

/** Phases of an attempt in order. `create_wait` costs nothing; `lost` is work that was not stored before the end. */
const LIFE_PHASES = [
  'create_wait',
  'boot',
  'environment',
  'weights',
  'compile',
  'extract',
  'upload',
  'job',
  'idle',
  'lost',
] as const;
type LifePhase = (typeof LIFE_PHASES)[number];
export type LifePhases = Partial<Record<LifePhase, {seconds: number; usd: number | null}>>;

/** Phases whose time a lost shard may have cost, the latest first. */
const LOSABLE = ['extract', 'upload', 'compile', 'weights'] as const;

function phaseOf({heartbeat_at, activity, boot_step, work}: Worker): LifePhase {
  if (heartbeat_at === null) return 'boot';
  switch (activity) {
    case 'setup':
      return boot_step === 'bundle' || boot_step === 'environment' ? 'environment' : 'boot';
    case 'loading':
      return 'weights';
    case 'compiling':
      return 'compile';
    case 'uploading':
      return 'upload';
    case 'running':
    case 'waiting':
    case 'ended':
      return parseJobWork(work) === undefined ? 'extract' : 'job';
    default:
      return 'idle';
  }
}

function secondsSince({heartbeat_at, ready_at}: Worker, now: number): number {
  const since = heartbeat_at ?? ready_at;
  return since === null ? 0 : Math.max(0, now - msOf(since)) / 1000;
}

function withPhase(worker: Worker, added_s: number): Record<string, number> {
  const name = phaseOf(worker);
  return {...worker.phase_seconds, [name]: (worker.phase_seconds[name] ?? 0) + added_s};
}

export function livedUntil(
  worker: Worker,
  said: Pick<Worker, 'work' | 'tokens_done' | 'shards_done'>,
  now: number,
): LifeFields {
  const added_s = secondsSince(worker, now);
  const isSame = said.work !== null && said.work === worker.work;
  const added = isSame ? Math.max(0, (said.tokens_done ?? 0) - (worker.tokens_done ?? 0)) : 0;
  const isStored = !isSame || (said.shards_done ?? 0) > (worker.shards_done ?? 0);
  return {
    phase_seconds: withPhase(worker, added_s),
    unstored_s: isStored ? 0 : worker.unstored_s + added_s,
    computed_tokens: worker.computed_tokens + added,
    unstored_tokens: isStored ? 0 : worker.unstored_tokens + added,
  };
}

/** The phases of an incarnation that ends now. A death turns the work since the last stored shard into `lost`. */
export function phasesAtEnd(worker: Worker, death: Death | undefined, now: number): LifePhases {
  const {born_at, ready_at, usd_per_hour} = worker;
  const until = ready_at === null ? now : msOf(ready_at);
  const spent: Record<string, number> = ready_at === null ? {} : withPhase(worker, secondsSince(worker, now));
  if (born_at !== null) spent.create_wait = Math.max(0, until - msOf(born_at)) / 1000;
  const isLost = death !== undefined && worker.work !== null;
  let left = isLost ? worker.unstored_s + secondsSince(worker, now) : 0;
  for (const name of LOSABLE) {
    const moved = Math.min(left, spent[name] ?? 0);
    if (moved === 0) continue;
    left -= moved;
    spent[name] = (spent[name] ?? 0) - moved;
    spent.lost = (spent.lost ?? 0) + moved;
  }
  const usdOf = (name: LifePhase, seconds: number) =>
    name === 'create_wait' ? 0 : usd_per_hour === null ? null : (seconds / 3600) * usd_per_hour;
  const entries = LIFE_PHASES.flatMap(name => {
    const seconds = Math.round(spent[name] ?? 0);
    return seconds === 0 ? [] : [[name, {seconds, usd: usdOf(name, seconds)}] as const];
  });
  return Object.fromEntries(entries);
}
