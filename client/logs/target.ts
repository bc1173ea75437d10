/** The run, TPU or job that a name means. */

import {nearText} from '../../shared/contracts/near-names.ts';
import {isRunId, JOB, parseWorkerName, paths} from '../../shared/domain/names.ts';
import type {Document, Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {newestJobs} from '../cloud/find-job.ts';
import {CliError, UsageError} from '../text/errors.ts';

export type Kind = 'run' | 'tpu' | 'job';
export type Kinds = {run?: boolean; tpu?: boolean; job?: boolean};

const NEWEST_JOBS = {order_by: {field: 'created_at', direction: 'desc'}, limit: 300} as const;

/** Finds the kind of a name; the `--name` of a job is one too. Throws `CliError` for a name of several kinds, and for an unknown name. */
export async function kindOf(cloud: Cloud, name: string, given: Kinds): Promise<Kind> {
  const asked = (['run', 'tpu', 'job'] as const).filter(kind => given[kind]);
  const kinds: Kind[] = asked.length > 0 ? asked : ['run', 'tpu', 'job'];
  const exists = await Promise.all(kinds.map(kind => has(cloud, kind, name)));
  const [first, second] = kinds.filter((_, index) => exists[index]);
  if (first && !second) return first;
  if (first && second)
    throw new UsageError(
      `There is a ${KINDS[first].word} and a ${KINDS[second].word} "${name}": add --${first} or --${second}`,
    );
  if (kinds.includes('job') && (await newestJobs(cloud, {name, limit: 1})).length > 0) return 'job';
  const known = await Promise.all(kinds.map(kind => KINDS[kind].names(cloud)));
  const near = nearText(name, known.flat());
  throw new CliError(`There is no ${kindsText(kinds)} "${name}": check the name${near}`);
}

type KindOfName = {
  word: string;
  /** Path of the document; undefined for a name that the kind cannot have. */
  pathOf: (name: string, jobs: string) => string | undefined;
  names: (cloud: Cloud) => Promise<string[]>;
};

const KINDS: Record<Kind, KindOfName> = {
  run: {
    word: 'run',
    pathOf: name => (isRunId(name) ? paths.run(name) : undefined),
    names: async ({store}) => (await store.query('runs')).map(({id}) => id),
  },
  tpu: {
    word: 'TPU',
    pathOf: name => (parseWorkerName(name) ? paths.worker(name) : undefined),
    names: async ({store}) => (await store.query('workers')).map(({id}) => id),
  },
  job: {
    word: 'job',
    pathOf: (name, jobs) => (JOB.test(name) ? paths.job(jobs, name) : undefined),
    names: async ({store, jobs}) => (await store.query(jobs, NEWEST_JOBS)).map(({id}) => id),
  },
};

function kindsText(kinds: readonly Kind[]): string {
  const words = kinds.map(kind => KINDS[kind].word);
  return words.length === 1 ? (words[0] ?? '') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
}

async function has({store, jobs}: Cloud, kind: Kind, name: string): Promise<boolean> {
  const path = KINDS[kind].pathOf(name, jobs);
  return path !== undefined && (await store.get(path)) !== undefined;
}

/** Whether the run is over. A run without a valid document is over, because no command can follow it. */
export async function isRunOver(store: Store, run: string): Promise<boolean> {
  const found: Document | undefined = await store.get(paths.run(run));
  return found?.status !== 'active' && found?.status !== 'paused';
}
