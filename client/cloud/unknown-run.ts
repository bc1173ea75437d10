import {nearText} from '../../shared/contracts/near-names.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';

/** Error for a name that no run has, with similar names. */
export async function unknownRun(store: Store, run: string): Promise<CliError> {
  const known = (await store.query('runs')).map(({id}) => id);
  return new CliError(`There is no run "${run}": \`gleaner status\` lists the runs${nearText(run, known)}`);
}
