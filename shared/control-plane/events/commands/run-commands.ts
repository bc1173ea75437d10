import {z} from 'zod';
import {Rejected} from '../../../contracts/errors.ts';
import {poolName} from '../../../contracts/messages/job-schemas.ts';
import {runId, version, withSomeOf} from '../../../contracts/messages/schemas.ts';
import {type Decision, decideRunAction} from '../../../domain/commands/commands.ts';
import {decideConfigure} from '../../../domain/commands/settings.ts';
import {paths, stopObject, streamPrefix} from '../../../domain/names.ts';
import {messageShape} from '../../../domain/records/field-schema.ts';
import type {Run} from '../../../domain/records/run.ts';
import {runChanges} from '../../../domain/records/spec-keys.ts';
import type {Deps} from '../../deps.ts';
import {runRecords} from '../../documents/documents.ts';
import {openTask, publishTask, taskId} from '../../documents/tasks.ts';
import {ensureRun} from '../../runs/ensure-run.ts';
import {updateTotals} from '../../runs/summarize-run.ts';
import {type Awaitable, command, conclude, type MessageTurn} from './command.ts';
import {pausePool, resumePool} from './pool-commands.ts';

/** Creates the document of a run whose first event has not arrived yet, so that a command cannot come too early. */
export async function ensureKnownRun(deps: Deps, {run}: {run: string}): Promise<void> {
  if (await runRecords.get(deps.store, run)) return;
  const [stream] = await deps.objects.list(streamPrefix(run), {limit: 1});
  if (stream) await ensureRun(deps, run);
}

async function onRun(
  {tx}: MessageTurn,
  run: string,
  decide: (parent: Run | undefined) => Awaitable<Decision<Run>>,
) {
  const decision = await decide(await runRecords.get(tx, run));
  return conclude(decision, next => runRecords.set(tx, next), {run});
}

export const start = command({
  schema: z.strictObject({action: z.literal('start'), run: runId}),
  prepare: ensureKnownRun,
  decide: (turn, {run}) =>
    onRun(turn, run, async parent => {
      const decision = decideRunAction('start', run, parent, turn.published_at, turn.now);
      if (decision.kind === 'applied') await openTask(turn.tx, {task: 'register', run}, turn.now);
      return decision;
    }),
  after: ({bus}, {run}) => publishTask(bus, {task: 'register', run}),
});

function runOrPoolCommand<Action extends 'pause' | 'resume'>(action: Action) {
  const decidePool = action === 'pause' ? pausePool : resumePool;
  return command({
    schema: z
      .strictObject({action: z.literal(action), run: runId.optional(), pool: poolName.optional()})
      .refine(({run, pool}) => (run === undefined) !== (pool === undefined), 'name a run or a pool')
      .meta({oneOf: [{required: ['run']}, {required: ['pool']}]}),
    prepare: async (deps, {run}) => {
      if (run !== undefined) await ensureKnownRun(deps, {run});
    },
    decide: async (turn, {run, pool = turn.deps.config.pool.pool}) => {
      if (run === undefined) return decidePool(turn, pool);
      return onRun(turn, run, parent => decideRunAction(action, run, parent, turn.published_at, turn.now));
    },
  });
}

export const pause = runOrPoolCommand('pause');
export const resume = runOrPoolCommand('resume');

/** Copies the stop of an unfinished run into the bucket, and adds the shards counted since the last summary to the totals of the run. */
export const stop = command({
  schema: z.strictObject({action: z.literal('stop'), run: runId}),
  prepare: ensureKnownRun,
  decide: (turn, {run}) =>
    onRun(turn, run, parent => decideRunAction('stop', run, parent, turn.published_at, turn.now)),
  after: async (deps, {run}) => {
    if ((await runRecords.get(deps.store, run))?.status === 'stopped')
      await deps.objects.create(stopObject(run), Buffer.from('{}\n'), {content_type: 'application/json'});
    await updateTotals(deps, run);
  },
});

export const configure = command({
  schema: withSomeOf(
    z.strictObject({
      action: z.literal('configure'),
      run: runId,
      ...messageShape(runChanges),
      if_version: version.optional(),
    }),
    ...Object.keys(runChanges),
  ),
  prepare: ensureKnownRun,
  decide: (turn, {action: _, run, if_version, ...settings}) =>
    onRun(turn, run, parent =>
      decideConfigure(run, parent, settings, if_version, turn.published_at, turn.now),
    ),
});

/** Rebuilds the documents of one run, or of every run, from the bucket. The task shows the progress and the result. */
export const rebuild = command({
  schema: z.strictObject({action: z.literal('rebuild'), run: runId.optional()}),
  prepare: async ({objects}, {run}) => {
    const isEmpty = run !== undefined && (await objects.list(streamPrefix(run), {limit: 1})).length === 0;
    if (isEmpty)
      throw new Rejected(`there is nothing to rebuild: the bucket holds no stream of run "${run}"`);
  },
  decide: async ({tx, now}, {run = null}) => {
    await openTask(tx, {task: 'rebuild', run}, now);
    const path = paths.task(taskId({task: 'rebuild', run}));
    const about = run === null ? {} : {run};
    return {outcome: 'applied', reason: `the rebuild has begun; ${path} shows its progress`, about};
  },
  after: ({bus}, {run = null}) => publishTask(bus, {task: 'rebuild', run}),
});
