import {createReadStream} from 'node:fs';
import {mkdtemp, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {pipeline} from 'node:stream/promises';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {findJob} from '../../client/cloud/find-job.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {Downloads} from '../../client/google/downloads.ts';
import {CliError} from '../../client/text/errors.ts';
import {print, printText, say} from '../../client/text/output.ts';
import {reasonOf} from '../../client/views/job-view.ts';
import {printableLines} from '../../shared/contracts/printable.ts';
import {isFinal} from '../../shared/domain/job/lifecycle.ts';

/** Prints the result of a completed job, and nothing else, on standard output. As JSON, a result in an object is its address. */
export async function get(given: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const {id, job} = await findJob(cloud, given);
    if (!isFinal(job))
      throw new CliError(
        `Job ${id} has no result yet: it is ${job.status ?? 'pending'}; \`gleaner jobs follow ${id}\` waits for it`,
      );
    if (job.status !== 'completed')
      throw new CliError(`Job ${id} has no result: it is ${job.status}${reasonOf(job)}`);
    const {result, result_path} = job;
    if (options.json)
      return print<'jobs get'>(true, {id, result: result ?? null, result_path: result_path ?? null}, []);
    if (typeof result_path === 'string') return printObject(cloud, result_path);
    if (typeof result !== 'string') return say(`job ${id} has no result`);
    // A terminal obeys control characters; a file or a program gets the text as it is.
    if (process.stdout.isTTY) printText(result.split('\n'));
    else process.stdout.write(result.endsWith('\n') ? result : `${result}\n`);
  });
}

/** Prints an object whose name begins with the bucket. The whole object comes before its first byte is printed. */
async function printObject(cloud: Cloud, path: string): Promise<void> {
  const {objects} = cloud;
  const name = path.replace(`gs://${objects.bucket}/`, '');
  const info = await objects.head(name);
  if (!info) throw new CliError(`There is no object ${path}: it was deleted`);
  const folder = await mkdtemp(join(tmpdir(), 'gleaner-result-'));
  try {
    const file = join(folder, 'result');
    await downloadsOf(cloud).write(info, file);
    const filter = process.stdout.isTTY ? shownTexts : passed;
    await pipeline(createReadStream(file), filter, process.stdout, {end: false});
  } finally {
    await rm(folder, {recursive: true, force: true});
  }
}

async function* shownTexts(bytes: AsyncIterable<Buffer>) {
  const decoder = new TextDecoder();
  for await (const piece of bytes) yield printableLines(decoder.decode(piece, {stream: true}));
  yield '\n';
}

const passed = (bytes: AsyncIterable<Buffer>) => bytes;

export function downloadsOf({connection}: Cloud): Downloads {
  const {project, bucket, storage_endpoint: endpoint, token} = connection;
  return new Downloads({project, bucket, endpoint, token});
}
