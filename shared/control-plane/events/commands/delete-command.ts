import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {poolName} from '../../../contracts/messages/job-schemas.ts';
import {runId, workerNameText} from '../../../contracts/messages/schemas.ts';
import {decideDelete, decideDeleteRun} from '../../../domain/commands/commands.ts';
import {runOfInput} from '../../../domain/job/inputs.ts';
import {parseWork, paths} from '../../../domain/names.ts';
import type {Worker} from '../../../domain/records/worker.ts';
import type {Filter} from '../../../ports/ports.ts';
import {newOpenRuns, readOpenRuns} from '../../caches/open-runs.ts';
import type {Deps} from '../../deps.ts';
import {LIVING, leftAlone, runRecords, workerRecords} from '../../documents/documents.ts';
import {openTask, publishTask} from '../../documents/tasks.ts';
import {firstWaiting} from '../../jobs/waiting-jobs.ts';
import {type CommandOutcome, command, conclude, type MessageTurn, refused} from './command.ts';
import {ensureKnownRun} from './run-commands.ts';

/** Deletes the TPU of a slot; a run that is over, with all that it stored; or a pool that nothing uses. */
export const deleteNamed = command({
  schema: z
    .strictObject({
      action: z.literal('delete'),
      worker: workerNameText.optional(),
      run: runId.optional(),
      pool: poolName.optional(),
    })
    .refine(
      ({worker, run, pool}) => [worker, run, pool].filter(name => name !== undefined).length === 1,
      'name a worker, a run or a pool',
    )
    .meta({oneOf: [{required: ['worker']}, {required: ['run']}, {required: ['pool']}]}),
  prepare: async (deps, {run, pool}) => {
    if (run !== undefined) {
      await ensureKnownRun(deps, {run});
      await refuseUsedRun(deps, run);
    }
    if (pool !== undefined) await refuseUsedPool(deps, pool);
  },
  decide: async (turn, {worker, run, pool = ''}) => {
    const {tx, now, published_at} = turn;
    if (worker !== undefined) {
      const decision = decideDelete(worker, await workerRecords.get(tx, worker), published_at);
      return conclude(decision, next => workerRecords.set(tx, next), {worker});
    }
    if (run === undefined) return deletePool(turn, pool);
    const decision = decideDeleteRun(run, await runRecords.get(tx, run), now);
    if (decision.kind === 'applied') await openTask(tx, {task: 'delete', run}, now);
    return conclude(decision, next => runRecords.set(tx, next), {run});
  },
  after: async ({bus}, {run}) => {
    if (run !== undefined) await publishTask(bus, {task: 'delete', run});
  },
});

const UNENDED: Filter = {field: 'status', op: 'in', value: ['pending', 'scheduled', 'running']};
/** Unfinished jobs whose inputs are compared. */
const MOST_JOBS = 1000;

async function refuseUsedRun(deps: Deps, run: string): Promise<void> {
  const {store, config} = deps;
  const [worker] = await livingWorkers(deps, ({work}) => parseWork(work)?.run === run);
  if (worker) throw new Rejected(`${worker.name} still works on run "${run}": it stops within a minute`);
  const jobs = await store.query(config.jobs_collection, {where: [UNENDED], limit: MOST_JOBS});
  const isReader = (input: unknown) => typeof input === 'string' && runOfInput(input) === run;
  const reader = jobs.find(({data: {inputs}}) => Array.isArray(inputs) && inputs.some(isReader));
  if (reader)
    throw new Rejected(`job ${reader.id} reads run "${run}": \`gleaner jobs cancel ${reader.id}\` ends it`);
}

async function refuseUsedPool(deps: Deps, name: string): Promise<void> {
  if (name === deps.config.pool.pool)
    throw new Rejected(
      `pool "${name}" is the deployment's own: \`gleaner scale ${name} --workers-per-zone 0\` empties it`,
    );
  const {runs} = await readOpenRuns({...deps, openRuns: newOpenRuns()});
  const run = runs.find(({pool}) => pool === name);
  if (run)
    throw new Rejected(
      `run "${run.run}" is ${run.status} and uses pool "${name}": \`gleaner run stop ${run.run}\` ends it`,
    );
  const [job] = await firstWaiting(deps, name, 1);
  if (job)
    throw new Rejected(`job ${job.job} waits for pool "${name}": \`gleaner jobs cancel ${job.job}\` ends it`);
  const [worker] = await livingWorkers(deps, ({pool}) => pool === name);
  if (worker)
    throw new Rejected(
      `pool "${name}" still has TPUs, such as ${worker.name}: \`gleaner scale ${name} --workers-per-zone 0\` deletes them`,
    );
}

async function livingWorkers({store, log}: Deps, isMeant: (worker: Worker) => boolean): Promise<Worker[]> {
  return workerRecords
    .parseAll(await store.query('workers', {where: [LIVING]}), leftAlone(log))
    .filter(isMeant);
}

/** Deletes the documents of the pool and its zones. Those of its workers stay: a pool of that name counts their incarnations on. */
async function deletePool({deps, tx}: MessageTurn, name: string): Promise<CommandOutcome> {
  const zones = await deps.store.query('zones', {where: [{field: 'pool', op: '==', value: name}]});
  if (!(await tx.get(paths.pool(name)))) return refused(`there is no pool "${name}"`, {pool: name});
  for (const {path} of zones) tx.delete(path);
  tx.delete(paths.pool(name));
  return {outcome: 'applied', reason: `pool ${name} is deleted`, about: {pool: name}};
}
