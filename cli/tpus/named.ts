/** TPUs that the arguments of `recreate` and `delete` name. */
import type {Worker} from '../../shared/domain/worker/worker.ts';
import type {Fleet} from '../hosts/targets.ts';
import {CliError} from '../terminal/errors.ts';
import {nearText} from '../terminal/near-names.ts';

export type Choice = {zone?: string | undefined; all?: boolean | undefined};

/** TPUs of the names, or with `--zone` and `--all` every TPU that is not gone. Throws `CliError` for an unknown name. */
export function namedTpus({workers}: Fleet, names: readonly string[], {zone, all}: Choice): Worker[] {
  const ways = [names.length > 0, zone !== undefined, all === true].filter(Boolean).length;
  if (ways !== 1) throw new CliError('choose the TPUs: names, --zone ZONE or --all');
  if (names.length === 0)
    return workers.filter(worker => worker.phase !== 'gone' && (zone === undefined || worker.zone === zone));
  const unknown = [...new Set(names)].filter(name => !workers.some(worker => worker.name === name));
  if (unknown.length > 0) throw new CliError(unknownText(unknown, workers));
  return workers.filter(({name}) => names.includes(name));
}

function unknownText(unknown: readonly string[], workers: readonly Worker[]): string {
  const known = workers.map(({name}) => name);
  const lines = unknown.map(name => `there is no TPU "${name}"${nearText(name, known)}`);
  return `${lines.join('\n')}\n\`gleaner tpus list --all\` lists the TPUs`;
}
