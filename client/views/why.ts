/** Why a run, a stream, a job or a TPU waits. */
import {
  poolRecords,
  runRecords,
  streamRecords,
  workerRecords,
} from '../../shared/control-plane/documents/documents.ts';
import {jobRecords} from '../../shared/control-plane/documents/job-documents.ts';
import {slotsOf} from '../../shared/domain/fleet/slots.ts';
import {laggardOf, laggardText} from '../../shared/domain/job/laggard.ts';
import {isRunId, parseWorkerName, paths} from '../../shared/domain/names.ts';
import {type Constraint, nextStep, waitText} from '../../shared/domain/records/constraint.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import {newWorker, type Worker} from '../../shared/domain/records/worker.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {findJob} from '../cloud/find-job.ts';
import {unknownRun} from '../cloud/fleet.ts';
import {explainJob, explainRun, explainStream, explainTpu} from '../explanations/explain.ts';
import {tpuStatus} from '../explanations/tpu-status.ts';
import type {Answers} from '../json/index.ts';
import {type Kinds, kindOf} from '../logs/target.ts';
import {CliError} from '../text/errors.ts';
import {drainText} from './pace.ts';
import {streamsOf} from './run-state.ts';

type Answer = Answers['why'];
/** `state`: the status word. `moves`: the sentence for work without a constraint. */
type Found = {name: string; state: string; moves: string; pool: string; why: Constraint | undefined};

export async function explain(cloud: Cloud, name: string, kinds: Kinds = {}): Promise<Answer> {
  const {why, pool, ...found} = await find(cloud, name, kinds);
  const stopped = isOver(found) ? undefined : await cloud.connection.stopped();
  if (stopped) return ofStopped(found, stopped);
  const first = why?.kind === 'behind' ? await ofFirst(cloud, why.about) : undefined;
  const step =
    (first?.why && nextStep(first.why, {work: first.name, pool})) ??
    (why && nextStep(why, {work: name, pool}));
  return {
    ...found,
    waits: why !== undefined,
    ...{kind: why?.kind ?? null, about: why?.about ?? null, evidence: why?.evidence ?? null},
    ...{since_at: why?.since_at ?? null, refusals: why?.refusals ?? 0, next_try_at: why?.next_try_at ?? null},
    reason: why ? waitText(why) : null,
    next_step: why ? (step ?? 'nothing: it ends by itself') : null,
    behind: first?.why ? `${first.name}: ${waitText(first.why)}` : null,
  };
}

const ENDED = ['completed', 'failed', 'cancelled', 'stopped'];
const isOver = ({state}: Pick<Found, 'state'>) => ENDED.includes(state);

/** Nothing moves while a local cloud is stopped, whatever its last tick wrote. */
function ofStopped(found: Pick<Found, 'name' | 'state' | 'moves'>, stopped: string): Answer {
  const [reason = '', next_step = null] = stopped.split(': ');
  const none = {kind: null, about: null, evidence: null, since_at: null, refusals: 0, next_try_at: null};
  return {...found, ...none, waits: true, reason, next_step, behind: null};
}

/** Work behind other work waits for the reason of that work too. */
async function ofFirst(cloud: Cloud, about: string): Promise<Pick<Found, 'name' | 'why'> | undefined> {
  const name = about.split(' ').at(-1) ?? '';
  if (!about.startsWith('run '))
    return {name: 'jobs', why: (await poolIn(cloud, name))?.jobs_wait ?? undefined};
  const run = await runRecords.get(cloud.store, name);
  return run && {name, why: explainRun(run)};
}

async function find(cloud: Cloud, name: string, kinds: Kinds): Promise<Found> {
  const [run = '', stream] = name.split('/');
  if (stream !== undefined) return ofStream(cloud, run, stream);
  const slot = await emptySlot(cloud, name);
  if (slot) return ofTpu(cloud, slot);
  const kind = await kindOf(cloud, name, kinds);
  switch (kind) {
    case 'run':
      return ofRun(cloud, await readRun(cloud, name));
    case 'tpu':
      return ofTpu(cloud, (await workerRecords.get(cloud.store, name)) ?? missing(name));
    case 'job':
      return ofJob(cloud, name);
    default:
      return kind satisfies never;
  }
}

function missing(name: string): never {
  throw new CliError(`There is no ${name}: it was deleted a moment ago`);
}

/** The slot of a pool that never had a TPU. */
async function emptySlot(cloud: Cloud, name: string): Promise<Worker | undefined> {
  const place = parseWorkerName(name);
  if (!place || (await cloud.store.get(paths.worker(name)))) return undefined;
  const pool = await poolIn(cloud, place.pool);
  return pool && slotsOf(pool).some(slot => slot.name === name) ? newWorker(name, place, 0) : undefined;
}

function poolIn({store}: Cloud, name: string): Promise<Pool | undefined> {
  return poolRecords.read(() => {}, store, name);
}

async function readRun({store}: Cloud, name: string): Promise<Run> {
  const run = isRunId(name) ? await runRecords.get(store, name) : undefined;
  if (!run) throw await unknownRun(store, name);
  return run;
}

async function ofRun({store}: Cloud, run: Run): Promise<Found> {
  const {streams_in_progress, streams_completed} = run;
  const workers =
    run.status === 'paused' ? workerRecords.parseAll(await store.query('workers'), () => {}) : [];
  const drains = drainText(run, workers);
  const why = explainRun(run);
  const moves =
    run.status === 'active'
      ? `${streams_in_progress} of ${streamsOf(run)} streams are in progress, and ${streams_completed} are complete`
      : 'nothing waits';
  const found = why && drains ? {...why, evidence: [why.evidence, drains].filter(Boolean).join('; ')} : why;
  return {name: run.run, state: run.status, moves, pool: run.pool, why: found};
}

async function ofStream(cloud: Cloud, name: string, id: string): Promise<Found> {
  const run = await readRun(cloud, name);
  const stream = await streamRecords.get(cloud.store, name, id);
  if (!stream)
    throw new CliError(`There is no stream "${id}" in run ${name}: \`gleaner status ${name}\` lists them`);
  const {lease, status} = stream;
  const holder = lease ? await workerRecords.get(cloud.store, lease.worker) : undefined;
  const moves = lease
    ? `${lease.worker} works on it (${holder?.activity ?? 'unknown activity'})`
    : 'nothing waits';
  return {
    name: `${name}/${id}`,
    state: status,
    moves,
    pool: run.pool,
    why: explainStream(stream, run, holder),
  };
}

async function ofJob(cloud: Cloud, given: string): Promise<Found> {
  const {id: name, job: document} = await findJob(cloud, given);
  const stored = [{path: paths.job(cloud.jobs, name), id: name, data: document}];
  const [job] = jobRecords.parseAll(stored, () => {});
  if (!job)
    return {name, state: 'pending', moves: 'a tick takes it up within a minute', pool: '', why: undefined};
  const names = job.lease ? [job.lease, ...job.lease.members].map(({worker}) => worker) : [];
  const holders = await Promise.all([...new Set(names)].map(each => workerRecords.get(cloud.store, each)));
  const [holder] = holders;
  const held = holders.flatMap(each => each ?? []);
  const laggard = laggardOf(job, held);
  const moves = job.lease
    ? `attempt ${job.epoch} runs on ${job.lease.worker}${laggard ? `: ${laggardText(laggard)}` : ''}`
    : 'a tick takes it up within a minute';
  const isOver = job.completed_at !== null;
  const why = explainJob(job, await poolIn(cloud, job.pool), holder);
  return {name, state: job.status, moves: isOver ? 'nothing waits' : moves, pool: job.pool, why};
}

async function ofTpu(cloud: Cloud, worker: Worker): Promise<Found> {
  const pool = await poolIn(cloud, worker.pool);
  const moves = worker.work === null ? 'no work needs it' : `it works on ${worker.work}`;
  return {
    name: worker.name,
    state: tpuStatus(worker),
    moves,
    pool: worker.pool,
    why: explainTpu(worker, pool, Date.now()),
  };
}
