/** The run, TPU or job that a name means. */

import {nearText} from '../../shared/contracts/near-names.ts';
import {runRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {isRunId, JOB, parseWorkerName, paths} from '../../shared/domain/names.ts';
import type {Document, Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {CliError, UsageError} from '../text/errors.ts';
import {say} from '../text/output.ts';

export type Kind = 'run' | 'tpu' | 'job';
export type Kinds = {run?: boolean; tpu?: boolean; job?: boolean};

const MOST_JOBS = 300;

/** Finds the kind of a name. Throws `CliError` for a name of several kinds, and for an unknown name. */
export async function kindOf(cloud: Cloud, name: string, given: Kinds): Promise<Kind> {
  const asked = (['run', 'tpu', 'job'] as const).filter(kind => given[kind]);
  const kinds: Kind[] = asked.length > 0 ? asked : ['run', 'tpu', 'job'];
  const exists = await Promise.all(kinds.map(kind => has(cloud, kind, name)));
  const [first, second] = kinds.filter((_, index) => exists[index]);
  if (first && !second) return first;
  if (first && second)
    throw new UsageError(
      `There is a ${WORDS[first]} and a ${WORDS[second]} "${name}": add --${first} or --${second}`,
    );
  const near = nearText(name, await knownNames(cloud, kinds));
  throw new CliError(`There is no ${kindsText(kinds)} "${name}": check the name${near}`);
}

const WORDS: Record<Kind, string> = {run: 'run', tpu: 'TPU', job: 'job'};

function kindsText(kinds: readonly Kind[]): string {
  const words = kinds.map(kind => WORDS[kind]);
  return words.length === 1 ? (words[0] ?? '') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
}

async function has({store, jobs}: Cloud, kind: Kind, name: string): Promise<boolean> {
  const path = pathOf(kind, name, jobs);
  return path !== undefined && (await store.get(path)) !== undefined;
}

/** Path of the document; undefined for a name that the kind cannot have. */
function pathOf(kind: Kind, name: string, jobs: string): string | undefined {
  switch (kind) {
    case 'run':
      return isRunId(name) ? paths.run(name) : undefined;
    case 'tpu':
      return parseWorkerName(name) ? paths.worker(name) : undefined;
    case 'job':
      return JOB.test(name) ? paths.job(jobs, name) : undefined;
    default:
      return kind satisfies never;
  }
}

async function knownNames({store, jobs}: Cloud, kinds: readonly Kind[]): Promise<string[]> {
  const names: string[] = [];
  const warn = ({message}: Error) => say(message);
  if (kinds.includes('run'))
    names.push(...runRecords.parseAll(await store.query('runs'), warn).map(({run}) => run));
  if (kinds.includes('tpu'))
    names.push(...workerRecords.parseAll(await store.query('workers'), warn).map(({name}) => name));
  if (kinds.includes('job')) names.push(...(await newestJobs(store, jobs)));
  return names;
}

async function newestJobs(store: Store, jobs: string): Promise<string[]> {
  const order_by = {field: 'created_at', direction: 'desc'} as const;
  return (await store.query(jobs, {order_by, limit: MOST_JOBS})).map(({id}) => id);
}

/** Whether the run is over. A run without a valid document is over, because no command can follow it. */
export async function isRunOver(store: Store, run: string): Promise<boolean> {
  const found: Document | undefined = await store.get(paths.run(run));
  return found?.status !== 'active' && found?.status !== 'paused';
}
