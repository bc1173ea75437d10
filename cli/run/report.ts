/** `gleaner run report`: a run as one HTML file that loads nothing. */
import {type Cloud, withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {unknownRun} from '../cloud/unknown-run.ts';
import {bytesText} from '../terminal/format.ts';
import {complain, print, say} from '../terminal/output.ts';
import {readReport} from '../views/report.ts';
import {readComparison} from './reference.ts';
import {replaceFile} from './replace-file.ts';
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
