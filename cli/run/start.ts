/** `gleaner run start`: writes run.json, drops the streams of a folder, and waits until the control plane has taken them up. */

import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {apply, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, counted, dollarText} from '../../client/text/format.ts';
import {print, quoted, say} from '../../client/text/output.ts';
import {jsonText} from '../../shared/contracts/printable.ts';
import {DEFAULT_MODEL} from '../../shared/contracts/settings/environment.ts';
import type {RunSpecInput} from '../../shared/contracts/spec/spec.ts';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {globOf} from '../../shared/domain/billing/ceilings.ts';
import {datasetPrefix, parseDatasetObject, specObject, streamPrefix} from '../../shared/domain/names.ts';
import type {Run} from '../../shared/domain/records/run.ts';
import {readStreamFolder, type StreamFolder} from '../streams/folder.ts';
import {uploadLines, uploadReportLines, uploadStreams} from '../streams/upload-streams.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import {checkRun} from './check-run.ts';
import {estimateStart} from './estimate/before-start.ts';
import type {Report} from './estimate/report.ts';
import {newestEvent, untilRegistered} from './registration.ts';
import {copyLine, copyStreams, requireFrozen} from './spec/from-run.ts';
import {type SpecOptions, specOf} from './spec/spec.ts';
import {writeSpec} from './spec/write-spec.ts';

type StartOptions = CloudOptions &
  SpecOptions & {
    from?: string;
    streams?: string;
    parallel: number;
    mirror?: boolean;
    check?: boolean;
    watch?: boolean;
  };

export async function start(run: string, options: StartOptions): Promise<void> {
  const folder = options.streams === undefined ? undefined : await readStreamFolder(options.streams);
  const {from} = options;
  const typed = from === undefined ? await specOf(options, folder?.spec) : undefined;
  const stopped = abortedAtStop();
  await withCloud(options, async cloud => {
    const given = typed ?? (await specOf(options, await requireFrozen(cloud, from ?? '')));
    if (options.dry_run) return printCommands(cloud, run, given, {folder, from}, options.json);
    const begun = await refuseEnded(cloud, run);
    const budget_usd = given.budget_usd ?? begun?.budget_usd ?? null;
    say(planText(run, budget_usd, {folder, from}));
    const spec = options.mirror ? await withMirror(cloud, given, stopped) : given;
    const checks = options.check ?? true;
    const sampled = checks
      ? await checkRun(cloud, {run, input: spec, streams: folder?.streams ?? []})
      : undefined;
    const estimate =
      folder && checks ? await estimateStart(cloud, {run, input: spec, folder, sampled}, budget_usd) : null;
    if (checks && !folder)
      say(
        `No estimate: the streams are not in a folder of this machine; \`gleaner estimate ${from ?? run}\` reads them in the bucket`,
      );
    await writeSpec(cloud, run, spec);
    if (budget_usd === null) say('The run has no budget of its own: --budget-usd N gives it one');
    if (spec.compute_dtype === 'fp32') say('compute_dtype fp32 takes about 7 times the TPU time of bf16');
    const since = await newestEvent(cloud);
    const numbers = folder
      ? await drop(cloud, run, folder, options.parallel, stopped)
      : from === undefined
        ? await startDropped(cloud, run)
        : await copyStreams(cloud, from, run);
    const rejected = await untilRegistered(cloud, run, {streams: numbers, since, stopped});
    await report(cloud, run, numbers.length, {rejected, estimate}, options.json);
  });
  if (options.watch && process.exitCode === undefined)
    await (await import('./watch/watch.ts')).watch(run, {...options, interval: 2});
}

/** The spec with copies in the bucket: of its model, and of the files of its reductions. */
async function withMirror(
  cloud: Cloud,
  {revision, ...spec}: RunSpecInput,
  stop: AbortSignal,
): Promise<RunSpecInput> {
  const {isHubModel, mirrorModel, mirroredText} = await import('../models/mirror.ts');
  const copy = async (repository: string, commit: string | null | undefined, path?: string[]) => {
    const mirrored = await mirrorModel(cloud, repository, {revision: commit ?? undefined, path, say, stop});
    say(mirroredText(mirrored));
    return mirrored.address;
  };
  const model = await copy(spec.model ?? cloud.connection.default_model ?? DEFAULT_MODEL, revision);
  const copied = {...structuredClone(spec), model};
  const entries = [copied.features ?? [], copied.project ?? []].flat();
  for (const entry of entries.filter(({weights}) => isHubModel(weights))) {
    entry.weights = await copy(entry.weights, entry.revision, [globOf(entry.path)]);
    delete entry.revision;
  }
  return copied;
}

/** A folder of streams, or another run; neither for streams that are in the bucket. */
type Inputs = {folder?: StreamFolder | undefined; from?: string | undefined};

export function planText(run: string, budget: number | null, {folder, from}: Inputs): string {
  const bytes = folder?.streams.reduce((sum, stream) => sum + stream.bytes, 0) ?? 0;
  const what = folder
    ? `${counted(folder.streams.length, 'stream')} of ${bytesText(bytes)} from ${folder.folder}`
    : from === undefined
      ? 'the streams in the bucket'
      : `the streams of run ${from}`;
  return `Run ${run}: ${what}, ${budget === null ? 'no budget' : `budget ${dollarText(budget)}`}`;
}

/** Uploads the streams of a folder, and returns their numbers. */
async function drop(
  cloud: Cloud,
  run: string,
  folder: StreamFolder,
  parallel: number,
  stopped: AbortSignal,
): Promise<string[]> {
  const uploaded = await uploadStreams(cloud, folder.folder, run, {parallel, say, stopped, with_spec: false});
  for (const line of uploadReportLines(uploaded)) say(line);
  return folder.streams.map(({stream}) => stream);
}

/** Registers the streams that are in the bucket already, and returns their numbers. */
async function startDropped(cloud: Cloud, run: string): Promise<string[]> {
  const objects = (await cloud.objects.list(streamPrefix(run))).map(({name}) => parseDatasetObject(name));
  const numbers = objects.flatMap(object =>
    object.kind === 'stream' && object.run === run ? [object.stream] : [],
  );
  if (numbers.length > 0) say(await apply(cloud, {action: 'start', run}));
  return numbers;
}

/** The document of the run, if it has begun. Throws `CliError` for a run that was stopped. */
async function refuseEnded({store}: Cloud, run: string): Promise<Run | undefined> {
  const found = await runRecords.get(store, run);
  if (found?.status === 'stopped')
    throw new CliError(
      `Failed to start run ${run}: it was stopped, and a stop is final; start a run with another name`,
    );
  if (found?.status === 'paused')
    say(
      `run ${run} is paused${found.reason ? `: ${found.reason}` : ''}; \`gleaner run resume ${run}\` continues it`,
    );
  return found;
}

async function report(
  {store}: Cloud,
  run: string,
  streams: number,
  {rejected, estimate}: {rejected: string[]; estimate: Report | null},
  json = false,
): Promise<void> {
  const found = await runRecords.get(store, run);
  const accepted = streams - rejected.length;
  const budget = found?.budget_usd ?? null;
  const lines =
    streams === 0
      ? [
          `${specObject(run)} is written, and no stream is there yet: gleaner streams upload FOLDER --run ${run}`,
        ]
      : [
          `run ${run} is ${found?.status ?? 'registered'}: ${counted(accepted, 'stream')} accepted, ${budget === null ? 'no budget' : `budget ${dollarText(budget)}`}`,
          ...rejected.map(text => `  rejected: ${text}`),
          ...(found?.status === 'active' ? [`  gleaner run watch ${run}`] : []),
        ];
  print<'run start'>(
    json,
    {run, status: found?.status ?? null, streams: accepted, rejected, estimate},
    lines,
  );
  if (rejected.length > 0) process.exitCode = 1;
}

function printCommands(
  {connection}: Cloud,
  run: string,
  spec: RunSpecInput,
  {folder, from}: Inputs,
  json = false,
): void {
  const {bucket} = connection;
  const to = quoted(`gs://${bucket}/${datasetPrefix(run)}run.json`);
  const commands = [
    `printf '%s\\n' ${quoted(jsonText(spec))} | gcloud storage cp --if-generation-match=0 - ${to}`,
    ...(folder
      ? uploadLines({...folder, spec: undefined}, run, bucket)
      : from === undefined
        ? [publishLine(connection, 'control', {action: 'start', run})]
        : [copyLine(connection, from, run)]),
  ];
  print<'run start'>(json, {commands}, commands);
}
