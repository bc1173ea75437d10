import {mkdir} from 'node:fs/promises';
import {join} from 'node:path';
import {type Connection, storageVariables} from '../../client/connection/connection.ts';
import {cacheFolder, runWorkerModule, workerPython} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {say} from '../../client/text/output.ts';
import type {RunSpec} from '../../shared/contracts/spec/spec.ts';

/** The worker's code could not reach the hub or the bucket, and says nothing about the spec. */
export class HubSilent extends CliError {}

/** Exit code of a module that could not read its inputs. */
const NOT_READ = 3;

/** Beginnings of lines about a hub that does not answer, as the worker's `print_wait` writes them, and about a type of the preflight. */
const WAIT = /^Waiting for /;
const TYPE = /^Compiling .* for /;

/**
 * Runs a module of the worker that looks at a spec and the small files of its model, and prints lines of JSON: `answer` gets each as it
 * comes, and the last is returned. Throws `CliError` with the module's own reason, and says each wait for a hub. `lock`: packages of the
 * module, the worker's by default.
 */
export async function askWorker(
  module: string,
  spec: RunSpec,
  args: readonly string[],
  connection: Connection | undefined,
  {
    lock,
    answer,
    progress,
  }: {
    lock?: string;
    answer?: (value: unknown) => void;
    /** Gets the beginning of each type of TPU. */
    progress?: (line: string) => void;
  } = {},
): Promise<unknown> {
  const home = join(cacheFolder(), 'models');
  await mkdir(home, {recursive: true});
  // The module's own errors come back below; the environment reports its progress here.
  await workerPython(say, lock);
  // A model in a bucket needs a bucket too.
  const bucket = args.includes('--bucket') || !connection ? [] : ['--bucket', connection.bucket];
  const {code, stdout, stderr} = await runWorkerModule(
    [module, '--spec', JSON.stringify(spec), '--home', home, ...args, ...bucket],
    connection ? storageVariables(connection) : {},
    line => {
      if (WAIT.test(line)) say(line);
      if (TYPE.test(line)) progress?.(line);
    },
    lock,
    line => answer?.(JSON.parse(line)),
  );
  const last = stdout.at(-1);
  if (code !== 0 || !last) {
    const problem =
      stderr.at(-1) ?? `Failed to run ${module}: it ended with exit ${code} and printed nothing`;
    throw code === NOT_READ ? new HubSilent(problem) : new CliError(problem);
  }
  return JSON.parse(last);
}
