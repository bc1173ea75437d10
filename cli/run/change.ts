/** Verbs on runs and streams. Each waits until its message is applied or rejected. */
import {runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {parseWork, paths} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/run/run.ts';
import {isAlive, type Worker} from '../../shared/domain/worker/worker.ts';
import {
  type Cloud,
  outcomeOf,
  publish,
  publishLine,
  type SendOptions,
  withCloud,
} from '../cloud/send-message.ts';
import {type Budget, budgetField} from '../terminal/arguments.ts';
import {requireConsent} from '../terminal/ask.ts';
import {CliError, UsageError} from '../terminal/errors.ts';
import {counted, dollarText, numberText} from '../terminal/format.ts';
import {nearText} from '../terminal/near-names.ts';
import {print, say} from '../terminal/output.ts';

export function pause(run: string, options: SendOptions): Promise<void> {
  return change(run, {action: 'pause', run}, options);
}

export function resume(run: string, options: SendOptions): Promise<void> {
  return change(run, {action: 'resume', run}, options);
}

export function retry(run: string, {stream, ...options}: SendOptions & {stream?: string}): Promise<void> {
  return change(run, {action: 'retry', run, stream}, options);
}

export function cancel(run: string, {stream, ...options}: SendOptions & {stream: string}): Promise<void> {
  return change(run, {action: 'cancel', run, stream}, options);
}

type Settings = {priority?: number; budgetUsd?: Budget; allowMixedCode?: boolean; ifVersion?: number};

export function configure(run: string, options: SendOptions & Settings): Promise<void> {
  const budget_usd = budgetField(options.budgetUsd);
  const {priority, allowMixedCode: allow_mixed_code, ifVersion: if_version} = options;
  const settings = {priority, budget_usd, allow_mixed_code};
  if (Object.values(settings).every(value => value === undefined))
    throw new UsageError('there is nothing to change: give --priority, --budget-usd or --allow-mixed-code');
  // Undefined fields are not in the JSON.
  return change(run, {action: 'configure', run, ...settings, if_version}, options);
}

/** Ends a run after a question: it deletes the TPUs of the run, and gives up the streams that are not completed. */
export async function stop(run: string, {yes, ...options}: SendOptions & {yes?: boolean}): Promise<void> {
  const message = {action: 'stop', run};
  if (options.dryRun) return change(run, message, options);
  await withCloud(options, async cloud => {
    const found = await runRecords.get(cloud.store, run);
    if (!found) throw await unknownRun(cloud, run);
    await requireConsent(await consequencesOf(cloud, found), {yes});
    await sendChange(cloud, run, message, options);
  });
}

async function consequencesOf(cloud: Cloud, run: Run): Promise<string[]> {
  const unfinished = run.streams_pending + run.streams_in_progress;
  const workers = await workersOf(cloud, run.run);
  const usd = workers.reduce((sum, {usd_per_hour}) => sum + (usd_per_hour ?? 0), 0);
  return [
    `This ends run ${run.run} for good: it takes no further stream, and nothing resumes it.`,
    `${counted(unfinished, 'stream')} that ${unfinished === 1 ? 'is' : 'are'} not completed will be given up.`,
    workers.length > 0
      ? `TPUs that lose their work (${dollarText(usd)} an hour): ${namesText(workers)}.`
      : 'No TPU works on it now.',
    `Stored shards stay: ${counted(run.total_shards, 'shard')} for ${dollarText(run.cost_usd)}.`,
  ];
}

const MOST_NAMES = 20;

function namesText(workers: readonly Worker[]): string {
  const names = workers.slice(0, MOST_NAMES).map(({name}) => name);
  const more = workers.length - names.length;
  return `${names.join(', ')}${more > 0 ? ` and ${numberText(more)} more` : ''}`;
}

async function workersOf({store}: Cloud, run: string): Promise<Worker[]> {
  const workers = workerRecords.parseAll(await store.query('workers'), ({message}) => say(message));
  return workers.filter(
    worker => isAlive(worker) && worker.work !== null && parseWork(worker.work)?.run === run,
  );
}

function change(run: string, message: object, options: SendOptions): Promise<void> {
  return withCloud(options, cloud => sendChange(cloud, run, message, options));
}

/** Publishes a message about a run and prints its effect. A rejection names runs with a similar name. */
async function sendChange(cloud: Cloud, run: string, message: object, options: SendOptions): Promise<void> {
  const command = publishLine(cloud.connection, 'control', message);
  if (options.dryRun) return print(options.json, {command}, [command]);
  const {outcome, reason} = await outcomeOf(cloud.store, await publish(cloud, 'control', message));
  if (outcome === 'applied') return print(options.json, {done: reason}, [reason]);
  if (!(await cloud.store.get(paths.run(run)))) throw await unknownRun(cloud, run);
  throw new CliError(`the message was rejected: ${reason}`);
}

/** Error for a name that no run has. */
export async function unknownRun(cloud: Cloud, run: string): Promise<CliError> {
  return new CliError(
    `there is no run "${run}"${await similarRuns(cloud, run)}: \`gleaner status\` lists the runs`,
  );
}

/** `; did you mean "my-run"?` where no run has the name. */
export async function similarRuns({store}: Cloud, run: string): Promise<string> {
  const known = (await store.query('runs')).map(({id}) => id);
  return known.includes(run) ? '' : nearText(run, known);
}
