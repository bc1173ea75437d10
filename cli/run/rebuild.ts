import {withCloud} from '../../client/cloud/cloud.ts';
import {apply} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {print, say, warn} from '../../client/text/output.ts';
import {
  addToTally,
  describeTally,
  MENDED,
  NOTHING_FOUND,
  type Sources,
  type StreamSurvey,
  type Tally,
} from '../../shared/control-plane/streams/compare-streams.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {goneStreams, runsAnywhere, runsInBucket, surveyRun} from './survey.ts';
import {resultOf as taskResult} from './task-result.ts';

type RunReport = {run: string; right: boolean; summary: string; wrong: StreamSurvey[]};

/**
 * Rebuilds the documents of one run, or of every run, from the bucket with a `rebuild` message. A rebuild of every run first deletes
 * nodes without a document. `dry_run` sends no message and compares the documents with the bucket. Exit code 1: the message was refused,
 * or a stream is not right.
 */
export async function rebuild(run: string | undefined, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const {store, objects, connection} = cloud;
    const sources = {store, objects, log: warn};
    if (options.dry_run) return compare(sources, run, options, nameIn(connection.deployment, 'control'));
    await apply(cloud, {action: 'rebuild', ...(run === undefined ? {} : {run})});
    if (run === undefined) await resultOf(store, null);
    const runs = run === undefined ? await runsInBucket(sources) : [run];
    const reports = [];
    for (const each of runs) reports.push({run: each, ...(await resultOf(store, each))});
    const checked = [];
    for (const report of reports)
      checked.push({
        ...report,
        faulty: (await surveyRun(sources, report.run)).filter(({finding}) => finding === 'faulty'),
      });
    const lines = checked.flatMap(({run, reason, faulty}) => [
      ...[reason, ...faulty.map(lineOf)],
      `next step: \`gleaner verify ${run}\` when run ${run} has ended`,
    ]);
    print<'rebuild'>(options.json, {runs: checked}, lines.length > 0 ? lines : [NO_STREAM]);
    if (checked.some(({outcome, faulty}) => outcome !== 'applied' || faulty.length > 0)) process.exitCode = 1;
  });
}

const NO_STREAM = 'the bucket holds no stream';

/** Waits for a rebuild to end, and prints its progress. */
function resultOf(store: Store, run: string | null) {
  let printed = '';
  return taskResult(store, {task: 'rebuild', run}, ({result, cursor}) => {
    const progress = result ?? progressOf(run, cursor);
    if (progress !== '' && progress !== printed) say(progress);
    printed = progress;
  });
}

function progressOf(run: string | null, cursor: string): string {
  const {tally} = cursor === '' ? {} : (JSON.parse(cursor) as {tally?: Tally});
  return tally === undefined ? '' : `${run}: ${tally.streams} streams compared`;
}

async function compare(
  sources: Sources,
  asked: string | undefined,
  {json}: CloudOptions,
  topic: string,
): Promise<void> {
  const reports: RunReport[] = [];
  for (const run of asked === undefined ? await runsAnywhere(sources) : [asked]) {
    const present = await surveyRun(sources, run);
    const found = [...present, ...(await goneStreams(sources, run, present))];
    if (found.length === 0 && asked !== undefined)
      throw new CliError(`The bucket has no stream of a run "${run}": check the name`);
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
      ? [`  gcloud pubsub topics publish ${topic} --message='{"action":"rebuild","run":"${run}"}'`]
      : []),
  ]);
  print<'rebuild'>(json, {runs: reports}, lines.length > 0 ? lines : [NO_STREAM]);
  if (reports.some(({right}) => !right)) process.exitCode = 1;
}

function lineOf({stream, finding, stored_shards, known_shards, why}: StreamSurvey): string {
  if (finding === 'gone') return `  stream ${stream}  gone: ${why}`;
  const counts = `${stored_shards} shards in the bucket, ${known_shards} in its document`;
  return `  stream ${stream}  ${finding}  ${counts}${why ? `: ${why}` : ''}`;
}
