import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {unknownRun} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Entry} from '../../client/events/entry.ts';
import {openFilter} from '../../client/events/filter.ts';
import {listRejected, readerOf} from '../../client/events/read.ts';
import {styleOf} from '../../client/events/timeline.ts';
import {resultLines} from '../../client/explanations/result-lines.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, counted, dollarText, numberText, timeText} from '../../client/text/format.ts';
import {printJson, printText, type StyledLine, table} from '../../client/text/output.ts';
import {viewDeployment} from '../../client/views/deployment.ts';
import {
  type JobCounts,
  listRuns,
  type Overview,
  readOverview,
  runColumns,
} from '../../client/views/overview.ts';
import {usdPerHourFor, usdPerMillionTokens} from '../../client/views/rates.ts';
import {readResult, viewRun} from '../../client/views/run-state.ts';
import {countedBill} from '../../client/views/whole-bill.ts';
import {UNIT_PRICES_OF} from '../../shared/domain/billing/unit-prices.ts';
import {expiresFrom, type Run} from '../../shared/domain/records/run.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {utcText} from '../../shared/domain/time.ts';
import {costLine, headLine, streamCounts, streamLines, tpuLines} from '../screen/run-screen.ts';
import {RUN_STYLES} from '../screen/styles.ts';

/** Columns of output that is no terminal. */
const WIDE = 160;
const MOST_EVENTS = 10;
const MOST_REJECTED = 10;

/** `status`: of the listed runs. */
type StatusOptions = CloudOptions & {status?: string};

/** Prints every run, or one run with its TPUs, its streams and its latest events. */
export async function status(run: string | undefined, options: StatusOptions): Promise<void> {
  await withCloud(options, cloud =>
    run === undefined ? allRuns(cloud, options) : oneRun(cloud, run, options),
  );
}

async function allRuns(cloud: Cloud, {json, status: wanted}: StatusOptions): Promise<void> {
  const isWanted = ({status}: Run) => wanted === undefined || status === wanted;
  if (json)
    return printJson<'status'>((await listRuns(cloud.store)).filter(isWanted).map(run => withRates(run)));
  const view = await readOverview(cloud, Date.now());
  const runs = view.runs.filter(({run}) => isWanted(run));
  printText([
    ...(runs.length > 0
      ? table(Object.values(runColumns), runs, ({run}) => RUN_STYLES[run.status])
      : [view.runs.length > 0 ? `no run is ${wanted}` : noRunText(view)]),
    ...jobsLines(view.jobs),
    ...view.kept.map(({pool, text}) => `pool ${pool} ${text}`),
    ...view.alerts.map(alertLine),
    ...rejectedLines(view.rejected),
  ]);
}

/** A run whose document cannot be read is an alert, which follows. */
function noRunText({unreadable}: Overview): string {
  if (unreadable > 0) return `${counted(unreadable, 'run')} with a document that cannot be read`;
  return 'no runs yet: `gleaner run start` starts one';
}

async function oneRun(cloud: Cloud, name: string, {json}: CloudOptions): Promise<void> {
  const {store, objects} = cloud;
  const [view, rejected] = [await viewRun(store, name), await listRejected(cloud, run => run === name)];
  if (!view) {
    const {message} = await unknownRun(store, name);
    throw new CliError([message, ...rejectedLines(rejected).map(({text}) => text)].join('\n'));
  }
  const {run, streams, workers} = view;
  const result = run.status === 'completed' ? await readResult(objects, name) : null;
  const {alerts} = await viewDeployment(store, cloud.jobs);
  const reader = readerOf(store, await openFilter(store, name));
  const events = await reader.newest(MOST_EVENTS);
  if (json)
    return printJson<'status'>({
      run: withRates(run, workers),
      ...{streams, workers, events, rejected, result, alerts},
    });
  const tpus = workers.filter(({pool, charged_to}) => pool === run.pool || charged_to === name);
  const state = {...view, tpus};
  const size = {width: process.stdout.columns || WIDE, height: Number.POSITIVE_INFINITY};
  printText([
    headLine(state),
    ...alerts.map(alertLine),
    `${storedText(run)}; ${costLine(state).text}`,
    besideText(run, workers),
    ...expiryLines(run),
    ...(result ? resultLines(result) : []),
    ...(tpus.length > 0 ? ['', ...tpuLines(state, size)] : []),
    '',
    streamCounts(state),
    ...streamLines(state, size).map(line => ({...line, text: `  ${line.text}`})),
    ...rejectedLines(rejected),
    ...(events.length > 0 ? [''] : []),
    ...events.map(({at, text}) => ({text: `${timeText(at)}  ${text}`, style: styleOf(text)})),
  ]);
}

/** `1,240 samples, 2 rejected, 12 shards, 41 MB`. */
function storedText({total_samples_processed, rejected_samples, total_shards, total_bytes}: Run): string {
  const rejected = rejected_samples > 0 ? `, ${numberText(rejected_samples)} rejected` : '';
  return `${counted(total_samples_processed, 'sample')}${rejected}, ${counted(total_shards, 'shard')}, ${bytesText(total_bytes)}`;
}

/** `jobs  2 waiting, 1 running on tpu-us-central1-a-0`; nothing without such jobs. */
function jobsLines({waiting, running, on}: JobCounts): string[] {
  if (waiting + running === 0) return [];
  const where = on.length > 0 ? ` on ${on.slice(0, 10).join(', ')}${on.length > 10 ? ' …' : ''}` : '';
  return [`jobs  ${numberText(waiting)} waiting, ${numberText(running)} running${where}`];
}

function alertLine(text: string): StyledLine {
  return {text: `alert: ${text}`, style: 'red'};
}

/** The latest rejected objects, each with its reason. */
function rejectedLines(entries: readonly Entry[]): StyledLine[] {
  const texts = [...new Set(entries.map(({text}) => text))];
  const left = texts.length - MOST_REJECTED;
  const more =
    left > 0 ? [`${counted(left, 'further object')} rejected: \`gleaner events --kind rejected\``] : [];
  const shown = texts.slice(-MOST_REJECTED).map(text => `rejected: ${text}`);
  return [...more, ...shown].map(text => ({text, style: 'yellow'}));
}

function withRates(run: Run, workers: readonly Worker[] = []) {
  const beside = countedBill(run, usdPerHourFor(run.run, workers));
  return {...run, usd_per_million_tokens: usdPerMillionTokens(run), beside};
}

function expiredText(run: string, expired_at: string): string {
  return `the documents of its streams were deleted at ${utcText(expired_at)}, and the totals stay: \`gleaner run verify ${run}\` reads the bucket, and \`gleaner rebuild ${run}\` makes the documents again`;
}

function expiryLines(run: Run): string[] {
  const documents = run.expired_at === null ? [] : [expiredText(run.run, run.expired_at)];
  const from = expiresFrom(run);
  if (from === null) return documents;
  const when =
    Date.parse(from) > Date.now() ? `go from ${utcText(from)} on` : `have expired since ${utcText(from)}`;
  return [...documents, `shards ${when}: each ${counted(run.expire_days ?? 0, 'day')} after its upload`];
}

/** Costs beside TPUs and network, which no budget counts. */
function besideText(run: Run, workers: readonly Worker[]): string {
  const {operations_usd, control_usd, storage_usd_per_month} = countedBill(
    run,
    usdPerHourFor(run.run, workers),
  );
  return `not in the budget: ${dollarText(operations_usd)} operations, ${dollarText(control_usd)} functions and Firestore, ${dollarText(storage_usd_per_month)} storage each month (unit prices of ${UNIT_PRICES_OF})`;
}
