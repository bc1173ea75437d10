import {CAUSES} from '../../shared/domain/job/causes.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {send} from '../cloud/send-message.ts';
import {UsageError} from '../terminal/errors.ts';

type Options = CloudOptions & {where?: [name: string, cause: string]};

/** Runs one ended job again, or the jobs that failed for a cause. */
export async function retry(job: string | undefined, {where, ...options}: Options): Promise<void> {
  if ((job === undefined) === (where === undefined))
    throw new UsageError('There is no choice of jobs: give one of a job id and --where cause=CAUSE');
  if (where === undefined) return send({action: 'retry', job}, options);
  const [name, cause] = where;
  if (name !== 'cause' || !CAUSES.some(known => known === cause))
    throw new UsageError(`There is no --where ${name}=${cause}: give cause= and one of ${CAUSES.join(', ')}`);
  return send({action: 'retry', where: {cause}}, options);
}
