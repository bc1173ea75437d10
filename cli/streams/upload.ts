import {withCloud} from '../cloud/cloud.ts';
import {type CloudOptions, findCloud} from '../cloud/connect.ts';
import {print, say} from '../terminal/output.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import {readStreamFolder} from './folder.ts';
import {uploadLines, uploadReportLines, uploadStreams} from './upload-streams.ts';

type Options = CloudOptions & {run: string; parallel: number};

/** `gleaner streams upload`: uploads the streams of a folder, or prints the commands of gcloud. */
export async function upload(folder: string, options: Options): Promise<void> {
  const {run, parallel, json} = options;
  if (options.dry_run) return printCommands(folder, options);
  const stopped = abortedAtStop();
  const report = await withCloud(options, cloud =>
    uploadStreams(cloud, folder, run, {parallel, say, stopped}),
  );
  print<'streams upload'>(json, report, uploadReportLines(report));
}

async function printCommands(folder: string, options: Options): Promise<void> {
  const streams = await readStreamFolder(folder);
  const connection = await findCloud(options);
  try {
    const commands = uploadLines(streams, options.run, connection.bucket);
    print<'streams upload'>(options.json, {commands}, commands);
  } finally {
    await connection.close();
  }
}
