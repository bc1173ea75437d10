import {setTimeout as sleep} from 'node:timers/promises';
import {
  addToTally,
  describeTally,
  MENDED,
  NOTHING_FOUND,
  runsInBucket,
  type Sources,
  type StreamSurvey,
  surveyRun,
} from '../shared/control-plane/streams/compare-streams.ts';
import {goneStreams, runsAnywhere} from '../shared/control-plane/streams/gone-streams.ts';
import {paths} from '../shared/domain/names.ts';
import {openBus} from '../shared/google/bus.ts';
import {openObjects} from '../shared/google/objects.ts';
import type {Store} from '../shared/ports.ts';
import {connect, storeOf, type Where} from './connect.ts';
import {DEFAULT_DIR} from './defaults.ts';
import {CliError} from './errors.ts';
import {print, warn} from './output.ts';

/** A function may take minutes over a run of many streams, and Cloud TPU over the deletion of nodes without a document. */
const WAIT_S = 600;
const WAIT_FOR_NODES_S = 1800;
const POLL_MS = 250;

type RunReport = {run: string; right: boolean; summary: string; wrong: StreamSurvey[]};

/**
 * Makes the work state again from the bucket: a message `rebuild` for each run, which the functions obey. Without a run, nodes without
 * a document are deleted first. With `dryRun` nothing is sent: the documents are compared with the bucket here. Exit 1: a message was refused, or something is not right.
 */
export async function rebuild(
  run: string | undefined,
  options: Where & {json?: boolean; dryRun?: boolean},
): Promise<void> {
  const connection = await connect(options);
  const store = storeOf(connection);
  try {
    const {project, bucket, storage_endpoint} = connection;
    const sources = {store, objects: openObjects({project, bucket, endpoint: storage_endpoint}), log: warn};
    if (options.dryRun) return await compare(sources, run, options.json);
    const runs = run === undefined ? await runsInBucket(sources) : [run];
    if (connection.pubsub_endpoint === null)
      throw new CliError(
        `the local cloud of this folder does not run: start it with \`gleaner local up --dir ${options.dir ?? DEFAULT_DIR}\``,
      );
    const bus = openBus({project, token: connection.token});
    const publish = (message: {action: 'rebuild'; run?: string}) => bus.publish('control', message);
    if (run === undefined) await removeOrphans(publish, store);
    const ids = new Map<string, string>();
    for (const each of runs) ids.set(each, await publish({action: 'rebuild', run: each}));
    const outcomes = [];
    for (const [each, id] of ids) outcomes.push({run: each, ...(await outcomeOf(store, id, WAIT_S))});
    const reports = [];
    for (const outcome of outcomes) reports.push({...outcome, faulty: await faultyOf(sources, outcome.run)});
    const lines = reports.flatMap(({outcome, reason, faulty}) => [
      outcome === 'applied' ? reason : `refused: ${reason}`,
      ...faulty.map(lineOf),
    ]);
    print(options.json, {runs: reports}, lines.length > 0 ? lines : ['the bucket holds no stream']);
    if (reports.some(({outcome, faulty}) => outcome !== 'applied' || faulty.length > 0)) process.exitCode = 1;
  } finally {
    await store.close();
    await connection.close();
  }
}

/** The message about every run is done when no node without a document is left; a message for each run then says how it went. */
async function removeOrphans(
  publish: (message: {action: 'rebuild'}) => Promise<string>,
  store: Store,
): Promise<void> {
  const {outcome, reason} = await outcomeOf(store, await publish({action: 'rebuild'}), WAIT_FOR_NODES_S);
  if (outcome !== 'applied') throw new CliError(`the rebuild of every run was refused: ${reason}`);
}

async function compare(
  sources: Sources,
  asked: string | undefined,
  json: boolean | undefined,
): Promise<void> {
  const reports: RunReport[] = [];
  for (const run of asked === undefined ? await runsAnywhere(sources) : [asked]) {
    const present = await surveyRun(sources, run);
    const found = [...present, ...(await goneStreams(sources, run, present))];
    if (found.length === 0 && asked !== undefined)
      throw new CliError(`the bucket holds no stream of a run "${run}"`);
    if (found.length === 0) continue;
    const wrong = found.filter(({finding}) => finding !== 'right');
    reports.push({
      run,
      right: wrong.length === 0,
      summary: describeTally(run, addToTally(NOTHING_FOUND, found)),
      wrong,
    });
  }
  const lines = reports.flatMap(({run, summary, wrong}) => [
    summary,
    ...wrong.map(lineOf),
    ...(wrong.some(({finding}) => MENDED.includes(finding))
      ? [`  gcloud pubsub topics publish control --message='{"action":"rebuild","run":"${run}"}'`]
      : []),
  ]);
  print(json, {runs: reports}, lines.length > 0 ? lines : ['the bucket holds no stream']);
  if (reports.some(({right}) => !right)) process.exitCode = 1;
}

/** The streams whose shards do not belong together, which no document can mend. */
async function faultyOf(sources: Sources, run: string): Promise<StreamSurvey[]> {
  return (await surveyRun(sources, run)).filter(({finding}) => finding === 'faulty');
}

function lineOf({stream, finding, stored_shards, known_shards, why}: StreamSurvey): string {
  if (finding === 'gone') return `  stream ${stream}  gone: ${why}`;
  const counts = `${stored_shards} shards in the bucket, ${known_shards} in its document`;
  return `  stream ${stream}  ${finding}  ${counts}${why ? `: ${why}` : ''}`;
}

/** What the functions recorded of a message; they may not have it yet. */
async function outcomeOf(
  store: Store,
  id: string,
  wait_s: number,
): Promise<{outcome: string; reason: string}> {
  for (const end = Date.now() + wait_s * 1000; Date.now() < end; await sleep(POLL_MS)) {
    const record = await store.get(paths.control(id));
    if (record) return {outcome: String(record.outcome), reason: String(record.reason)};
  }
  throw new CliError(
    `message ${id} was published and not recorded in ${wait_s} s: see the log of the function on-control`,
  );
}
