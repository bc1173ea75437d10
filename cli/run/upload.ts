import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {type CloudOptions, findCloud} from '../../client/connection/connect.ts';
import {print, say} from '../../client/text/output.ts';
import {parseRunSpec} from '../../shared/contracts/spec/spec.ts';
import {readRunSpec} from '../../shared/control-plane/runs/run-manifest.ts';
import {readStreamFolder} from '../streams/folder.ts';
import {uploadLines, uploadReportLines, uploadStreams} from '../streams/upload-streams.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import {checkRun} from './check-run.ts';
import {frozenInput} from './spec/from-run.ts';

type StreamsUploadOptions = CloudOptions & {run: string; parallel: number; check?: boolean};

/** `gleaner streams upload`: uploads the streams of a folder, or prints the commands of gcloud. */
export async function upload(folder: string, options: StreamsUploadOptions): Promise<void> {
  const {run, parallel, json} = options;
  if (options.dry_run) return printCommands(folder, options);
  const stopped = abortedAtStop();
  const report = await withCloud(options, async cloud => {
    if (options.check ?? true) await checkUpload(cloud, folder, run);
    return uploadStreams(cloud, folder, run, {parallel, say, stopped});
  });
  print<'streams upload'>(json, report, uploadReportLines(report));
}

async function checkUpload(cloud: Cloud, folder: string, run: string): Promise<void> {
  const {spec, streams} = await readStreamFolder(folder);
  const written = async () =>
    spec ? parseRunSpec(spec.toString('utf8'), 'run.json') : readRunSpec(cloud.objects, run);
  const input = (await frozenInput(cloud, run)) ?? (await written()) ?? {};
  await checkRun(cloud, {run, input, streams});
}

async function printCommands(folder: string, options: StreamsUploadOptions): Promise<void> {
  const streams = await readStreamFolder(folder);
  const connection = await findCloud(options);
  try {
    const commands = uploadLines(streams, options.run, connection.bucket);
    print<'streams upload'>(options.json, {commands}, commands);
  } finally {
    await connection.close();
  }
}
