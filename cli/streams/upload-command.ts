import type {Where} from '../cloud/connect.ts';
import {findCloud} from '../cloud/connect.ts';
import {withCloud} from '../cloud/send-message.ts';
import {print, say} from '../terminal/output.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {readStreamFolder} from './folder.ts';
import {uploadLines, uploadReportLines, uploadStreams} from './upload.ts';

export type UploadCommandOptions = Where & {
  run: string;
  parallel: number;
  dryRun?: boolean;
  json?: boolean;
};

/** `gleaner streams upload`: uploads the streams of a folder, or prints the commands of gcloud. */
export async function upload(folder: string, options: UploadCommandOptions): Promise<void> {
  const {run, parallel, json} = options;
  if (options.dryRun) return printCommands(folder, options);
  const stopped = new AbortController();
  void stopSignal().then(() => stopped.abort());
  const report = await withCloud(options, cloud =>
    uploadStreams(cloud, folder, run, {parallel, say, stopped: stopped.signal}),
  );
  print(json, report, uploadReportLines(report));
}

async function printCommands(folder: string, {run, json, ...where}: UploadCommandOptions): Promise<void> {
  const streams = await readStreamFolder(folder);
  const connection = await findCloud(where);
  try {
    const commands = uploadLines(streams, run, connection.bucket);
    print(json, {commands}, commands);
  } finally {
    await connection.close();
  }
}
