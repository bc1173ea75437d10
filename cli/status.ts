import {LIVING, workerRecords} from '../shared/control-plane/state/documents.ts';
import {usdPerMillionTokens} from '../shared/domain/billing/cost.ts';
import {parseJobWork} from '../shared/domain/names.ts';
import type {Run} from '../shared/domain/run/run.ts';
import {openObjects} from '../shared/google/objects.ts';
import type {Store} from '../shared/ports.ts';
import {connect, storeOf, type Where} from './connect.ts';
import {CliError} from './errors.ts';
import {dollarText} from './format.ts';
import {print} from './output.ts';
import {
  listAlerts,
  listRejected,
  listRuns,
  readResult,
  resultLines,
  streamLine,
  type TimelineEntry,
  viewRun,
  workerLine,
} from './run-view.ts';

export async function status(run: string | undefined, options: Where & {json?: boolean}): Promise<void> {
  const connection = await connect(options);
  const store = storeOf(connection);
  try {
    if (run === undefined) {
      const runs = await listRuns(store);
      const known = new Set(runs.map(({run}) => run));
      print(options.json, runs.map(withRates), [
        ...(runs.length > 0 ? runs.map(runLine) : ['no runs yet: drop a stream into the bucket']),
        ...(await jobLines(store, connection.jobs)),
        ...(await listAlerts(store)).map(alertLine),
        ...(await listRejected(store, name => !known.has(name))).map(rejectedLine),
      ]);
      return;
    }
    const view = await viewRun(store, run);
    if (!view) {
      const rejected = (await listRejected(store, name => name === run)).map(rejectedLine);
      throw new CliError(
        [`there is no run "${run}": \`gleaner status\` lists the runs`, ...rejected].join('\n'),
      );
    }
    const {project, bucket, storage_endpoint} = connection;
    const result =
      view.run.status === 'completed'
        ? await readResult(openObjects({project, bucket, endpoint: storage_endpoint}), run)
        : null;
    const alerts = await listAlerts(store);
    print(options.json, {...view, run: withRates(view.run), result, alerts}, [
      runLine(view.run),
      ...alerts.map(alertLine),
      ...(result ? resultLines(result) : []),
      ...view.streams.map(stream => `  ${streamLine(stream, view.workers)}`),
      ...view.workers.map(worker => `  ${workerLine(worker)}`),
      ...view.rejected.map(rejectedLine),
      ...view.events.map(event => `  ${event.at.slice(11, 19)} ${event.text}`),
    ]);
  } finally {
    await store.close();
    await connection.close();
  }
}

/** Counts of waiting and running jobs, with the workers of the latter; nothing without such jobs. */
async function jobLines(store: Store, collection: string): Promise<string[]> {
  const waiting = await store.count(collection, [
    {field: 'status', op: 'in', value: ['pending', 'scheduled']},
  ]);
  const running = await store.count(collection, [{field: 'status', op: '==', value: 'running'}]);
  if (waiting + running === 0) return [];
  const workers = workerRecords.parseAll(await store.query('workers', {where: [LIVING]}), () => {});
  const busy = workers.filter(({work}) => parseJobWork(work) !== undefined).map(({name}) => name);
  const where = busy.length > 0 ? ` on ${busy.slice(0, 10).join(', ')}${busy.length > 10 ? ' …' : ''}` : '';
  return [`jobs  ${waiting} waiting, ${running} running${where}`];
}

function alertLine(text: string): string {
  return `  alert: ${text}`;
}

function rejectedLine({text}: TimelineEntry): string {
  return `  not taken: ${text}`;
}

function runLine(run: Run): string {
  const streams = run.streams_pending + run.streams_in_progress + run.streams_completed + run.streams_failed;
  const why = run.reason ? `: ${run.reason}` : '';
  return (
    `${run.run}  ${run.status}${why}  ${run.streams_completed} of ${streams} streams, ` +
    `${run.total_samples_processed} samples, ${run.rejected_samples} rejected, ${run.total_shards} shards, ` +
    `${(run.total_bytes / 1e6).toFixed(1)} MB${costText(run)}`
  );
}

function withRates(run: Run) {
  return {...run, usd_per_million_tokens: usdPerMillionTokens(run)};
}

/** `, $1.24 of $20.00 ($0.310 a million tokens)`; nothing where no TPU has cost anything yet. */
function costText(run: Run): string {
  if (run.cost_usd === 0) return '';
  const budget = run.budget_usd === null ? '' : ` of ${dollarText(run.budget_usd)}`;
  const rate = usdPerMillionTokens(run);
  const each = rate === null ? '' : ` ($${rate.toPrecision(3)} a million tokens)`;
  return `, ${dollarText(run.cost_usd)}${budget}${each}`;
}
