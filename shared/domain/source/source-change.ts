/** Changes of a pool's source and environment by `update` messages. */
import {type Decision, rejected} from '../commands/commands.ts';
import {outdatedText, splitByPublishTime, withPublishTime} from '../commands/publish-order.ts';
import type {Pool} from '../fleet/pool.ts';
import {type Environment, internetNeed, type Source, type SourceChange} from './source.ts';

export type SourceUpdate = {
  /** Null: the pool has no source of its own any more. */
  source?: SourceChange | null | undefined;
  environment?: {[Key in keyof Environment]?: Environment[Key] | undefined} | undefined;
};

/**
 * `update`: sets the source of a pool, fields of its environment, or both. Every update is a new version, also with equal values and
 * without any: the hosts read the code again, because a branch may have moved.
 */
export function decideUpdate(
  pool: Pool,
  {source: given, environment = {}}: SourceUpdate,
  hasInternet: boolean,
  published_at: string,
): Decision<Pool> {
  const source = given === undefined ? pool.source : withRepo(given, pool.source);
  if (typeof source === 'string') return rejected(`pool ${pool.pool} ${source}`);
  const changed = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== undefined));
  const isEmpty = given === undefined && Object.keys(changed).length === 0;
  if (isEmpty && !pool.source)
    return rejected(`pool ${pool.pool} has no source to update from: name a bundle or a repo`);
  const fields = [...(given === undefined && !isEmpty ? [] : ['source']), ...Object.keys(changed)];
  const {current, outdated} = splitByPublishTime(pool.said, fields, published_at);
  if (current.length === 0) return rejected(outdatedText(pool.said, outdated));
  const environmentFields = Object.fromEntries(
    Object.entries(changed).filter(([field]) => current.includes(field)),
  );
  const next: Pool = {
    ...pool,
    source: current.includes('source') ? source : pool.source,
    environment: {...pool.environment, ...environmentFields},
    source_version: pool.source_version + 1,
    said: withPublishTime(pool.said, current, published_at),
  };
  const needed = hasInternet ? undefined : internetNeed(next.source, next.environment);
  if (needed)
    return rejected(
      `pool ${pool.pool} has no way to the internet, which ${needed} needs: use a bundle, or deploy with internet = true`,
    );
  const late = outdated.length > 0 ? `; ${outdatedText(pool.said, outdated)}` : '';
  const environmentText =
    Object.keys(environmentFields).length > 0 ? `, with ${Object.keys(environmentFields).join(', ')}` : '';
  const what = `pool ${pool.pool} has source version ${next.source_version}: ${sourceText(next.source)}${environmentText}${late}`;
  return {kind: 'applied', next, what};
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
