import type {CloudOptions} from '../cloud/connect.ts';
import {send} from '../cloud/send-message.ts';
import {requireConsent} from '../terminal/ask.ts';

/** Deletes the documents of ended jobs after a question. */
export async function clear(options: CloudOptions): Promise<void> {
  const consequence = 'The documents of all ended jobs are deleted. Their output stays in the bucket.';
  if (!options.dry_run) await requireConsent([consequence], options);
  return send({action: 'clear'}, options);
}
