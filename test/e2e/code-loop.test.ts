import assert from 'node:assert/strict';
import {GitServer} from '../support/git-server.ts';
import {JobHome} from './job-home.ts';

const JOBS = ['left', 'right'];

/** A program that says its version until it is ended. */
const program = (version: string) =>
  `import itertools, time\nfor n in itertools.count():\n    print("${version}", n, flush=True)\n    time.sleep(0.5)\n`;

describe('The code loop on a local cloud with two workers', () => {
  let cloud: JobHome;
  let git: GitServer;
  before(async () => {
    [cloud, git] = await Promise.all([JobHome.start(2), GitServer.start()]);
  });
  after(async () => {
    await cloud?.remove();
    await git?.close();
  });

  /** Waits until every job prints a version. */
  async function runs(version: string): Promise<void> {
    for (const id of JOBS) await cloud.prints(id, `${version} 0`);
  }

  it('starts jobs with the branch of their pool', async () => {
    git.commit('main', 'main.py', program('first'));
    await cloud.succeeds('update', 'tpu', '--repo', git.url, '--branch', 'main');
    for (const id of JOBS) await cloud.send(id, {command: ['python', 'main.py'], timeout: 1800});
    await runs('first');
  });

  it('restarts the jobs with another branch, and twice with a pull request that moves', async () => {
    git.commit('feature', 'main.py', program('second'));
    await cloud.succeeds('update', 'tpu', '--branch', 'feature');
    await runs('second');
    for (const version of ['third', 'fourth']) {
      git.commit('refs/pull/7/head', 'main.py', program(version));
      await cloud.succeeds('update', 'tpu', '--pr', '7');
      await runs(version);
    }
  });

  it('keeps the old code running where a branch does not exist, and names the branch', async () => {
    const {code, stdout, stderr} = await cloud.gleaner('update', 'tpu', '--branch', 'nowhere');
    assert.equal(code, 1, stdout);
    assert.match(stdout + stderr, /nowhere/);
    for (const id of JOBS) {
      const lines = (await cloud.output(id)).match(/fourth \d+/g)?.length ?? 0;
      await cloud.prints(id, `fourth ${lines + 4}`);
    }
  });

  it('records the commit that ran, with each attempt', async () => {
    const commit = git.commit('main', 'main.py', 'print("the end")\n');
    await cloud.succeeds('update', 'tpu', '--branch', 'main');
    for (const id of JOBS) {
      const job = await cloud.ends(id);
      assert.deepEqual(
        [job.status, job.ran?.commit, job.ran?.repo, job.attempts.length],
        ['completed', commit, git.url, 1],
        JSON.stringify(job),
      );
    }
  });
});
