/** Tools of the steps: runs with a budget, messages, their waits, and the dollars that the test has cost. */
import {isDeepStrictEqual} from 'node:util';
import type {Cloud} from '../../client/cloud/cloud.ts';
import {apply} from '../../client/cloud/send-message.ts';
import type {GoogleApi} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import {dollarText} from '../../client/text/format.ts';
import {complain} from '../../client/text/output.ts';
import {type RunState, viewRun} from '../../client/views/run-state.ts';
import {MAX_SPEC_BYTES} from '../../shared/contracts/spec/spec.ts';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {readText} from '../../shared/control-plane/runs/run-manifest.ts';
import {capped} from '../../shared/domain/billing/network.ts';
import {labelsOf} from '../../shared/domain/deployment.ts';
import {isFinal} from '../../shared/domain/job/lifecycle.ts';
import {
  jobWork,
  parseWork,
  parseWorkerName,
  regionOf,
  specObject,
  streamId,
  streamObject,
} from '../../shared/domain/names.ts';
import {isOpen} from '../../shared/domain/records/run.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Tpu, Tpus} from '../../shared/ports/ports.ts';
import type {Clock} from '../deploy/until-ready.ts';
import {contextOf} from '../doctor/doctor.ts';
import {type Limit, waitFor} from '../run/wait.ts';
import type {SmokeState} from './state.ts';

/** A create has 2700 s (GLEANER_CREATE_S), and a boot with the download of a model some minutes more. */
export const TPU_S = 3600;
const REGISTERED_S = 120;

export type Bench = {
  cloud: Cloud;
  api: GoogleApi;
  tpus: Tpus;
  clock: Clock;
  state: SmokeState;
  keep: () => void;
  budget_usd: number;
  /** Model of the runs; undefined for that of the deployment. */
  model: string | undefined;
  record: {state_bucket?: string | undefined};
};

/** Waits until a run that should work has what `pick` finds. Throws `CliError` for a run that waits for a person. */
export function waitForRun<T>(
  bench: Bench,
  run: string,
  what: string,
  pick: (view: RunState) => T | undefined | Promise<T | undefined>,
  {limit_s = TPU_S, cure = `read \`gleaner status ${run}\``}: Partial<Limit> = {},
): Promise<T> {
  return waitFor(bench, what, {limit_s, cure}, async () => {
    const view = await viewRun(bench.cloud.store, run);
    const {status, reason} = view?.run ?? {};
    if (status === 'paused' || status === 'failed')
      throw new CliError(
        `${run} is ${status}: ${reason ?? 'without a reason'}; read \`gleaner status ${run}\``,
      );
    return view && pick(view);
  });
}

/** Dollars that the runs and jobs of the test have cost. */
export async function spentBy({cloud, state}: Pick<Bench, 'cloud' | 'state'>): Promise<number> {
  let usd = 0;
  for (const name of new Set(Object.values(state.runs))) {
    const run = await runRecords.get(cloud.store, name);
    usd += run ? capped(run) : 0;
  }
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
  const isUnended = async (name: string) => {
    const run = await runRecords.get(cloud.store, name);
    if (run) return isOpen(run);
    // The upload may not be registered yet.
    return (await cloud.objects.head(specObject(name))) !== undefined;
  };
  const open = await Promise.all(names.map(isUnended));
  return names.filter((_, index) => open[index]);
}

/** Jobs of the test that may still cost money. */
export async function openJobs({cloud, state}: Pick<Bench, 'cloud' | 'state'>): Promise<string[]> {
  const documents = await Promise.all(state.jobs.map(id => cloud.store.get(`${cloud.jobs}/${id}`)));
  return state.jobs.filter((_, index) => {
    const found = documents[index];
    return found !== undefined && !isFinal(found);
  });
}

type Spec = {pool?: string; tokens?: string; expire_days?: number};

/**
 * A run with the rest of the ceiling as its budget. `purpose` is a part of its name. The run of an earlier attempt goes on while it waits
 * for a TPU. Otherwise it is stopped, because two budgets could exceed the ceiling.
 */
export async function newRun(
  bench: Bench,
  purpose: string,
  streams: readonly string[],
  given: Spec = {},
): Promise<string> {
  const {cloud, state, keep, model} = bench;
  const spec = {layers: '0-1', shard_size_gb: 0.0002, model, ...(await crossRegion(bench)), ...given};
  const runToResume = await waitingRun(bench, state.runs[purpose], spec);
  for (const open of await openRuns(bench)) if (open !== runToResume) await stopRun(bench, open);
  const run = runToResume ?? `smoke-${state.id}-${purpose}-${++state.attempts}`;
  if (!runToResume) {
    const budget_usd = await leftOf(bench);
    state.runs[`${purpose}-${state.attempts}`] = run;
    state.runs[purpose] = run;
    keep();
    const text = Buffer.from(JSON.stringify({...spec, budget_usd}));
    await cloud.objects.create(specObject(run), text, {content_type: 'application/json'});
  }
  // An interrupted attempt may have uploaded only some.
  const create = async ([index, content]: [number, string]) =>
    void (await cloud.objects.create(streamObject(run, streamId(index)), Buffer.from(content)));
  await forEachConcurrently([...streams.entries()], create);
  return run;
}

/** The run, if it has this spec and no TPU works on it yet: a run at work may end before a step sees its lease. */
async function waitingRun(
  {cloud}: Bench,
  name: string | undefined,
  spec: object,
): Promise<string | undefined> {
  const {run, streams = []} = (name === undefined ? undefined : await viewRun(cloud.store, name)) ?? {};
  if (run?.status !== 'active' || run.total_shards > 0) return undefined;
  if (streams.some(({status}) => status !== 'pending')) return undefined;
  const text = await readText(cloud.objects, specObject(run.run), MAX_SPEC_BYTES);
  const {budget_usd: _, ...stored} = JSON.parse(text ?? '{}');
  return isDeepStrictEqual(stored, JSON.parse(JSON.stringify(spec))) ? run.run : undefined;
}

async function stopRun(bench: Bench, run: string): Promise<void> {
  const {bucket} = bench.cloud.connection;
  const cure = `read \`gleaner events --kind rejected\`, then delete gs://${bucket}/${specObject(run)}`;
  await waitFor(bench, `document of ${run}`, {limit_s: REGISTERED_S, cure}, () =>
    runRecords.get(bench.cloud.store, run),
  );
  await control(bench, {action: 'stop', run});
}

/** A deployment whose zones are in other regions than its bucket pays for each byte between them. */
async function crossRegion({cloud, record}: Bench): Promise<{allow_cross_region?: true}> {
  if (!cloud.connection.is_google) return {};
  const {zones, region} = await contextOf(cloud, record);
  return zones.some(zone => regionOf(zone) !== region) ? {allow_cross_region: true} : {};
}

export function records(count: number): string {
  const lines = Array.from({length: count}, (_, index) => {
    const words = Array.from({length: 15}, (_, word) => `w${(index * 31 + word * 17) % 97}`);
    return `${JSON.stringify({text: `${index} ${words.join(' ')}`})}\n`;
  });
  return lines.join('');
}

export function leased(bench: Bench, run: string): Promise<Worker> {
  const cure = `read \`gleaner status ${run}\` and \`gleaner tpus list --all\`, then run the smoke test again`;
  const holder = ({workers}: RunState) => workers.find(({work}) => work?.startsWith(`${run}/`));
  return waitForRun(bench, run, `lease of ${run}`, holder, {cure});
}

export function hasWorkedFor({work, charged_to, costs}: Worker, run: string): boolean {
  return parseWork(work)?.run === run || charged_to === run || run in costs;
}

/** TPUs of the pool of the test, and those that worked for its runs and do nothing for others now. */
export async function testTpus(bench: Bench): Promise<Tpu[]> {
  const {cloud, state} = bench;
  const runs = Object.values(state.runs);
  const jobs = state.jobs.map(jobWork);
  const isOfTest = (worker: Worker) => {
    const {work} = worker;
    if (work !== null) return runs.includes(parseWork(work)?.run ?? '') || jobs.includes(work);
    return runs.some(run => hasWorkedFor(worker, run));
  };
  const workers = workerRecords.parseAll(await cloud.store.query('workers'), ({message}) =>
    complain(message),
  );
  const names = new Set(workers.filter(isOfTest).map(({name}) => name));
  const wanted = Object.entries(labelsOf(cloud.connection.deployment));
  return (await bench.tpus.list()).tpus.filter(
    ({name, labels}) =>
      wanted.every(([key, value]) => labels[key] === value) &&
      (names.has(name) || parseWorkerName(name)?.pool === state.pool),
  );
}

/** Waits until no TPU of the test is left. TPUs of other work stay. */
export async function withoutTpus(bench: Bench): Promise<void> {
  const limit: Limit = {limit_s: 600, cure: ''};
  await waitFor(bench, 'end of the TPUs of the test', limit, async () => {
    const names = (await testTpus(bench)).map(({name}) => name);
    limit.cure = `delete them with \`gleaner tpus delete ${names.join(' ')}\`, then read the log of on-tpu`;
    return names.length === 0 || undefined;
  });
}

export const control = ({cloud}: Bench, message: object): Promise<string> => apply(cloud, message);
