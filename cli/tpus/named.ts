/** TPUs that the arguments of `recreate` and `delete` name. */

import type {Fleet} from '../../client/cloud/fleet.ts';
import {CliError, UsageError} from '../../client/text/errors.ts';
import {nearText} from '../../shared/contracts/near-names.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';

export type Choice = {zone?: string | undefined; all?: boolean | undefined};

/** TPUs of the names, or with `--zone` and `--all` every TPU that is not gone. Throws `CliError` for an unknown name. */
export function namedTpus({workers}: Fleet, names: readonly string[], {zone, all}: Choice): Worker[] {
  const ways = [names.length > 0, zone !== undefined, all === true].filter(Boolean).length;
  if (ways !== 1) throw new UsageError('There is no choice of TPUs: give names, --zone ZONE or --all');
  if (names.length === 0)
    return workers.filter(worker => worker.phase !== 'gone' && (zone === undefined || worker.zone === zone));
  const unknown = [...new Set(names)].filter(name => !workers.some(worker => worker.name === name));
  if (unknown.length > 0) throw unknownTpu(unknown, {workers});
  return workers.filter(({name}) => names.includes(name));
}

/** Error for names that no TPU has, with similar names. */
export function unknownTpu(unknown: readonly string[], {workers}: Pick<Fleet, 'workers'>): CliError {
  const known = workers.map(({name}) => name);
  const lines = unknown.map(name => `There is no TPU "${name}"${nearText(name, known)}`);
  return new CliError(`${lines.join('\n')}\n\`gleaner tpus list --all\` lists the TPUs`);
}
