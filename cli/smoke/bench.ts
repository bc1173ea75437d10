/** Tools of the steps: runs with a budget, messages, waits, and the dollars that the test has cost. */
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {labelsOf, nameIn} from '../../shared/domain/deployment.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Tpus} from '../../shared/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {apply, type Outcome, readOutcome} from '../cloud/send-message.ts';
import type {Clock} from '../deploy/clock.ts';
import type {GoogleApi} from '../google/api.ts';
import {type RunView, viewRun} from '../run/run-view.ts';
import {CliError} from '../terminal/errors.ts';
import {dollarText} from '../terminal/format.ts';
import type {SmokeState} from './state.ts';

const LOOK_S = 2;

export type Bench = {
  cloud: Cloud;
  api: GoogleApi;
  tpus: Tpus;
  clock: Clock;
  state: SmokeState;
  /** Writes the state. */
  keep: () => void;
  budget_usd: number;
  /** Model of the runs; undefined for that of the deployment. */
  model: string | undefined;
  /** Where the record of the deployment is. */
  record: {state_bucket?: string | undefined};
};

/** Waits for an answer of `look`. `cure` ends the error after the limit. */
export async function waitFor<T>(
  {clock}: Bench,
  what: string,
  {limit_s, cure}: {limit_s: number; cure: string},
  look: () => Promise<T | undefined>,
): Promise<T> {
  for (const end_ms = clock.now() + limit_s * 1000; ; await clock.sleep(LOOK_S)) {
    const found = await look();
    if (found !== undefined) return found;
    if (clock.now() > end_ms) throw new CliError(`There is no ${what} after ${limit_s} s: ${cure}`);
  }
}

/** Dollars that the runs and jobs of the test have cost. */
export async function spentBy({cloud, state}: Pick<Bench, 'cloud' | 'state'>): Promise<number> {
  let usd = 0;
  for (const name of new Set(Object.values(state.runs)))
    usd += (await runRecords.get(cloud.store, name))?.cost_usd ?? 0;
  for (const id of state.jobs) {
    const job = await cloud.store.get(`${cloud.jobs}/${id}`);
    usd += Number(job?.spent_usd ?? 0);
  }
  return usd;
}

/** Dollars that are left. Throws `CliError` for a spent ceiling. */
export async function leftOf(bench: Bench): Promise<number> {
  const spent = await spentBy(bench);
  if (spent < bench.budget_usd) return bench.budget_usd - spent;
  throw new CliError(
    `The test has cost ${dollarText(spent)}: raise --budget-usd ${bench.budget_usd} to go on`,
  );
}

/** Runs of the test that may still cost money, such as those of a step that failed. */
export async function openRuns({cloud, state}: Pick<Bench, 'cloud' | 'state'>): Promise<string[]> {
  const names = [...new Set(Object.values(state.runs))];
  const runs = await Promise.all(names.map(name => runRecords.get(cloud.store, name)));
  return runs.flatMap(run => (run && ['active', 'paused'].includes(run.status) ? run.run : []));
}

/**
 * A new run with the rest of the ceiling as its budget. `purpose` is a part of its name. Stops the run of an earlier attempt, because
 * two budgets could exceed the ceiling. `pool`: TPUs of the run; by default those of the deployment.
 */
export async function newRun(
  bench: Bench,
  purpose: string,
  streams: readonly string[],
  pool?: string,
): Promise<string> {
  const {cloud, state, keep, model} = bench;
  for (const open of await openRuns(bench)) await control(bench, {action: 'stop', run: open});
  const budget_usd = await leftOf(bench);
  const run = `smoke-${state.id}-${purpose}-${++state.attempts}`;
  state.runs[`${purpose}-${state.attempts}`] = run;
  state.runs[purpose] = run;
  keep();
  const spec = {layers: '0-1', shard_size_gb: 0.0002, budget_usd, model, pool};
  await put(bench, `datasets/${run}/run.json`, JSON.stringify(spec));
  for (let from = 0; from < streams.length; from += 20)
    await Promise.all(
      streams.slice(from, from + 20).map(async (content, index) => {
        const number = String(from + index).padStart(3, '0');
        await cloud.objects.create(`datasets/${run}/stream_${number}.jsonl`, Buffer.from(content));
      }),
    );
  return run;
}

async function put({cloud}: Bench, name: string, text: string): Promise<void> {
  await cloud.objects.create(name, Buffer.from(text), {content_type: 'application/json'});
}

/** Records that differ. */
export function records(count: number): string {
  const lines = Array.from({length: count}, (_, index) => {
    const words = Array.from({length: 15}, (_, word) => `w${(index * 31 + word * 17) % 97}`);
    return `${JSON.stringify({text: `${index} ${words.join(' ')}`})}\n`;
  });
  return lines.join('');
}

/** Reads a run that should work. Throws `CliError` for a run that waits for a person. */
export async function viewOf({cloud}: Bench, run: string): Promise<RunView | undefined> {
  const view = await viewRun(cloud.store, run);
  const {status, reason} = view?.run ?? {};
  if (status === 'paused' || status === 'failed')
    throw new CliError(
      `${run} is ${status}: ${reason ?? 'without a reason'}; read \`gleaner status ${run}\``,
    );
  return view;
}

/** Waits for the lease of the first stream, and returns the TPU. */
export function leased(
  bench: Bench,
  run: string,
  limit_s = 1800,
): Promise<{name: string; zone: string; incarnation: number; born_at: string | null}> {
  const cure = 'read `gleaner status RUN` and `gleaner tpus list --all`, then run the smoke test again';
  return waitFor(bench, `lease of ${run}`, {limit_s, cure: cure.replace('RUN', run)}, async () => {
    const {workers = []} = (await viewOf(bench, run)) ?? {};
    return workers.find(({work}) => work?.startsWith(`${run}/`));
  });
}

/** Waits until a run is completed. */
export async function completed(bench: Bench, run: string, limit_s = 1800): Promise<void> {
  const cure = `read \`gleaner status ${run}\``;
  await waitFor(bench, `end of ${run}`, {limit_s, cure}, async () =>
    (await viewOf(bench, run))?.run.status === 'completed' ? true : undefined,
  );
}

/** Nodes and queued resources of the deployment. */
export async function ownTpus({cloud, tpus}: Bench) {
  const wanted = Object.entries(labelsOf(cloud.connection.deployment));
  const {tpus: all} = await tpus.list();
  return all.filter(({labels}) => wanted.every(([key, value]) => labels[key] === value));
}

export const control = ({cloud}: Bench, message: object): Promise<string> => apply(cloud, message);

/** Publishes bytes on topic control by REST, and waits for the record. */
export async function sendText(bench: Bench, text: string): Promise<Outcome> {
  const {cloud, api} = bench;
  const {project, deployment} = cloud.connection;
  const topic = nameIn(deployment, 'control');
  const {messageIds} = await api.call(
    'POST',
    `pubsub.googleapis.com/v1/projects/${project}/topics/${topic}:publish`,
    {
      messages: [{data: Buffer.from(text).toString('base64')}],
    },
  );
  const [id = ''] = messageIds as string[];
  const cure = 'read the log of the function on-control; 403 means that `invoker` may not call it';
  return waitFor(bench, `record ${paths.control(id)}`, {limit_s: 120, cure}, () =>
    readOutcome(cloud.store, id),
  );
}
