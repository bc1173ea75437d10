/** `gleaner run report`: a run as one HTML file that loads nothing. */
import {rename, writeFile} from 'node:fs/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {unknownRun} from '../../client/cloud/unknown-run.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText} from '../../client/text/format.ts';
import {complain, print, say} from '../../client/text/output.ts';
import {readReport} from '../../client/views/report.ts';
import {readComparison} from './reference.ts';
import {verifyRun} from './verify.ts';

type Options = CloudOptions & {output?: string; verify?: boolean};

export async function report(run: string, options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const text = await reportText(cloud, run, options.verify === true);
    const written = await replaceFile(options.output ?? `${run}-report.html`, text);
    const {file, size_bytes} = written;
    print<'run report'>(options.json, written, [
      `${file} is written, ${bytesText(size_bytes)}: a browser opens it`,
    ]);
  });
}

async function reportText(cloud: Cloud, run: string, verifies: boolean): Promise<string> {
  const {connection, store, objects} = cloud;
  const found = await readReport(cloud, run);
  if (!found) throw await unknownRun(store, run);
  found.page.state.invalid.forEach(complain);
  const verified = verifies ? await verifyRun(connection, run, say) : null;
  const compared = await readComparison(objects, run);
  const {runReport} = await import('../../dashboard/report/run-report.ts');
  const {bucket, project} = connection;
  return runReport(found, {at: new Date().toISOString(), bucket, project, verified, compared});
}

/** Replaces a file as a whole: no reader sees a part of it. */
export async function replaceFile(name: string, text: string): Promise<{file: string; size_bytes: number}> {
  const draft = `${name}.${process.pid}.tmp`;
  try {
    await writeFile(draft, text);
    await rename(draft, name);
  } catch (error) {
    throw new CliError(`Failed to write ${name}: ${(error as Error).message}`, {cause: error});
  }
  return {file: name, size_bytes: Buffer.byteLength(text)};
}
