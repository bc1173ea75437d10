/** Pools and workers that the command line names. */
import {nearText} from '../../shared/contracts/near-names.ts';
import {poolRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {poolOf} from '../../shared/domain/deployment.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import {isAlive, type Worker} from '../../shared/domain/records/worker.ts';
import type {Store} from '../../shared/ports/ports.ts';
import {CliError} from '../text/errors.ts';
import {say} from '../text/output.ts';
import type {Cloud} from './cloud.ts';

export type Fleet = {
  pools: Pool[];
  workers: Worker[];
  /** Names of pools. The deployment's own pool has no document before a message changes it. */
  names: string[];
};

export async function readFleet({store, connection}: Cloud): Promise<Fleet> {
  const warn = ({message}: Error) => say(message);
  const pools = poolRecords.parseAll(await store.query('pools'), warn);
  const workers = workerRecords.parseAll(await store.query('workers'), warn);
  const names = [
    poolOf(connection.deployment),
    ...pools.map(({pool}) => pool),
    ...workers.filter(isAlive).map(({pool}) => pool),
  ];
  return {pools, workers, names: [...new Set(names)].sort()};
}

/** Throws `CliError` for an unknown pool, and names those that exist. */
export function requirePool({names}: Fleet, pool: string): void {
  if (!names.includes(pool))
    throw new CliError(`There is no pool "${pool}", only ${names.join(', ')}: see \`gleaner pool create\``);
}

/** The running workers of a target: a pool, a worker, or `all`. */
export function aliveIn(fleet: Fleet, target: string): Worker[] {
  const alive = fleet.workers.filter(isAlive);
  if (target === 'all') return alive;
  const known = fleet.workers.find(({name}) => name === target);
  if (!known && !fleet.names.includes(target)) {
    const workers = alive.map(({name}) => name);
    const hint =
      workers.length > 0 ? `the running workers are ${workers.join(', ')}` : 'no worker is running';
    throw new CliError(
      `There is no pool and no worker "${target}": the pools are ${fleet.names.join(', ')}, and ${hint}`,
    );
  }
  return alive.filter(({name, pool}) => (known ? name === target : pool === target));
}

/** Error for a name that no run has, with similar names. */
export async function unknownRun(store: Store, run: string): Promise<CliError> {
  const known = (await store.query('runs')).map(({id}) => id);
  return new CliError(`There is no run "${run}": \`gleaner status\` lists the runs${nearText(run, known)}`);
}
