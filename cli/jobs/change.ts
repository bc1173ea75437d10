import {CAUSES} from '../../shared/domain/job/job.ts';
import {type SendOptions, send} from '../cloud/send-message.ts';
import {requireConsent} from '../terminal/ask.ts';
import {CliError} from '../terminal/errors.ts';

export function cancel(id: string, options: SendOptions): Promise<void> {
  return send({action: 'cancel', job: id}, options);
}

export async function retry(
  id: string | undefined,
  options: SendOptions & {where?: [string, string]},
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
export async function clear({yes, ...options}: SendOptions & {yes?: boolean}): Promise<void> {
  if (!options.dryRun)
    await requireConsent(['The documents of all ended jobs are deleted. Their output stays in the bucket.'], {
      yes,
    });
  return send({action: 'clear'}, options);
}
