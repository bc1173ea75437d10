import {createInterface} from 'node:readline/promises';
import {CAUSES} from '../../shared/domain/job/job.ts';
import type {Where} from '../connect.ts';
import {apply, publishLine, withCloud} from '../control.ts';
import {CliError} from '../errors.ts';
import {print} from '../output.ts';

export type Options = Where & {json?: boolean; dryRun?: boolean};

export function cancel(id: string, options: Options): Promise<void> {
  return send({action: 'cancel', job: id}, options);
}

export async function retry(
  id: string | undefined,
  options: Options & {where?: [string, string]},
): Promise<void> {
  const {where, ...others} = options;
  if ((id === undefined) === (where === undefined))
    throw new CliError('name one of a job id and --where cause=CAUSE');
  if (where === undefined) return send({action: 'retry', job: id}, others);
  const [key, cause] = where;
  if (key !== 'cause' || !CAUSES.some(known => known === cause))
    throw new CliError(`--where ${key}=${cause} is not known: use cause= and one of ${CAUSES.join(', ')}`);
  return send({action: 'retry', where: {cause}}, others);
}

/** Deletes the documents of ended jobs after a question. */
export async function clear({yes, ...options}: Options & {yes?: boolean}): Promise<void> {
  if (!yes && !options.dryRun) {
    if (!process.stdin.isTTY) throw new CliError('clear deletes the documents of ended jobs: add --yes');
    const asker = createInterface({input: process.stdin, output: process.stderr});
    const answer = await asker.question('Delete the documents of ended jobs? Type yes: ');
    asker.close();
    if (answer.trim() !== 'yes') throw new CliError('nothing was deleted');
  }
  return send({action: 'clear'}, options);
}

/** Publishes a control message, waits until it is applied, and prints what it did; or prints the command of gcloud. */
export async function send(message: object, options: Options): Promise<void> {
  await withCloud(options, async cloud => {
    const command = publishLine(cloud.connection, 'control', message);
    if (options.dryRun) return print(options.json, {command}, [command]);
    const done = await apply(cloud, message);
    print(options.json, {done}, [done]);
  });
}
