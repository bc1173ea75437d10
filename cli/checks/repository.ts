/** Checks that a git repository answers, and has the branch or the pull request. */
import {execFile} from 'node:child_process';
import type {Source, SourceChange} from '../../shared/domain/records/source.ts';
import {type Finding, refuseProblems} from './findings.ts';

/** State of a repository: one of branch, pull request and commit. */
export type Wanted = {repo: string; branch?: string; pr?: number; commit?: string};

const LIMIT_MS = 20_000;
/** Exit code of `git ls-remote --exit-code` without a matching ref. */
const NO_SUCH_REF = 2;
/** Texts of git for a repository that is not there, or not without a password. */
const REFUSED =
  /could not read Username|Authentication failed|not found|does not appear to be a git repository|returned error: 40[134]/i;

/** Throws `CliError` where the source cannot be fetched. `before`: the source of the pool, whose repository a change may keep. */
export async function checkSource(
  what: string,
  source: SourceChange | null | undefined,
  before: Source | null,
): Promise<void> {
  if (!source || 'bundle' in source) return;
  const repo = source.repo ?? (before && 'repo' in before ? before.repo : undefined);
  if (repo !== undefined) refuseProblems(what, await checkRepository({...source, repo}));
}

export async function checkRepository({repo, branch, pr}: Wanted): Promise<Finding[]> {
  const ref =
    branch !== undefined ? `refs/heads/${branch}` : pr !== undefined ? `refs/pull/${pr}/head` : 'HEAD';
  const {code, stderr} = await lsRemote(repo, ref);
  if (code === 0) return [];
  const what = branch !== undefined ? `branch ${branch}` : `pull request ${pr}`;
  if (code === NO_SUCH_REF && ref !== 'HEAD')
    return [{problem: `${repo} has no ${what}: correct --${branch !== undefined ? 'branch' : 'pr'}`}];
  if (code === NO_SUCH_REF) return [{problem: `${repo} has no commit`}];
  const cause = stderr.trim().split('\n').at(-1) ?? '';
  if (REFUSED.test(stderr))
    return [
      {
        problem: `${repo} shows no repository without a password: ${cause}; correct --repo. TPUs read a private repository with the token of git_token_secret, which this command lacks`,
      },
    ];
  return [{unchecked: `the repository ${repo}: ${cause || 'git did not answer'}`}];
}

/** Asks without a password and without the credentials of this person, because workers have none. */
function lsRemote(repo: string, ref: string): Promise<{code: number | string | undefined; stderr: string}> {
  const args = ['-c', 'credential.helper=', 'ls-remote', '--exit-code', '--', repo, ref];
  const env = {...process.env, GIT_TERMINAL_PROMPT: '0', GIT_ASKPASS: 'true', LC_ALL: 'C'};
  return new Promise(resolve => {
    execFile('git', args, {env, timeout: LIMIT_MS}, (error, _, stderr) =>
      resolve({code: error ? (error.code ?? undefined) : 0, stderr: stderr || (error?.message ?? '')}),
    );
  });
}
