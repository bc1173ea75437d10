/** Changes of a pool's source and environment by `update` messages. */
import {applied, type Decision, outdatedBy, rejected} from '../commands/commands.ts';
import {alsoOutdated, sortSettings} from '../commands/settings.ts';
import type {Pool} from '../records/pool.ts';
import {type Environment, internetNeed, type Source, type SourceChange} from '../records/source.ts';

export type SourceUpdate = {
  /** Null: removes the source of the pool. */
  source?: SourceChange | null | undefined;
  environment?: {[Key in keyof Environment]?: Environment[Key] | undefined} | undefined;
};

/**
 * `update`: sets the source of a pool, fields of its environment, or both. Every update is a new version, even if nothing changes: the hosts
 * fetch the code again, because a branch may have moved.
 */
export function decideUpdate(
  pool: Pool,
  {source: given, environment = {}}: SourceUpdate,
  hasInternet: boolean,
  published_at: string,
): Decision<Pool> {
  const source = given === undefined ? pool.source : withRepo(given, pool.source);
  if (typeof source === 'string') return rejected(`pool ${pool.pool} ${source}`);
  const isEmpty = given === undefined && Object.values(environment).every(value => value === undefined);
  if (isEmpty && !pool.source)
    return rejected(`pool ${pool.pool} has no source to update from: name a bundle or a repo`);
  const settings = {...(given === undefined && !isEmpty ? {} : {source}), ...environment};
  const {current, message_times, outdated} = sortSettings(pool, settings, published_at);
  if (!current) return outdatedBy(pool, outdated);
  const {source: newSource = pool.source, ...fields} = current;
  const next: Pool = {
    ...pool,
    source: newSource,
    environment: {...pool.environment, ...fields},
    source_version: pool.source_version + 1,
    message_times,
  };
  const needed = hasInternet ? undefined : internetNeed(next.source, next.environment);
  if (needed)
    return rejected(
      `pool ${pool.pool} has no way to the internet, which ${needed} needs: use a bundle, or deploy with internet = true`,
    );
  const names = Object.keys(fields);
  const environmentText = names.length > 0 ? `, with ${names.join(', ')}` : '';
  const what = `pool ${pool.pool} has source version ${next.source_version}: ${sourceText(next.source)}${environmentText}${alsoOutdated(pool, outdated)}`;
  return applied(next, what);
}

/** The complete source, or why it cannot be completed. */
function withRepo(change: SourceChange | null, before: Source | null): Source | null | string {
  if (change === null || 'bundle' in change) return change;
  const repo = change.repo ?? (before && 'repo' in before ? before.repo : undefined);
  if (repo === undefined) return 'has no repository yet: name its repo beside the branch, pr or commit';
  return {...change, repo};
}

export function sourceText(source: Source | null): string {
  if (!source) return 'the worker bundle alone';
  if ('bundle' in source) return `bundle ${source.bundle.slice(0, 12)}`;
  if ('branch' in source) return `branch ${source.branch} of ${source.repo}`;
  if ('pr' in source) return `pull request ${source.pr} of ${source.repo}`;
  return `commit ${source.commit.slice(0, 12)} of ${source.repo}`;
}
