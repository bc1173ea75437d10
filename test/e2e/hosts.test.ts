import assert from 'node:assert/strict';
import {GitServer} from '../support/fakes/git-server.ts';
import {JobHome} from './job-home.ts';

const JOBS = ['left', 'right'];
const TOKEN = 'a-token-of-the-host';
const WORKERS = ['tpu-us-central1-a-0', 'tpu-us-central1-a-1'];

/** A program that says its version until it is ended. */
const program = (version: string) =>
  `import itertools, time\nfor n in itertools.count():\n    print("${version}", n, flush=True)\n    time.sleep(0.5)\n`;

describe('Commands on the hosts of a local cloud', () => {
  let cloud: JobHome;
  let git: GitServer;
  before(async () => {
    git = await GitServer.start();
    const setting = `${new URL(git.url).host}=projects/gleaner-local/secrets/git`;
    cloud = await JobHome.start(2, ['--git-token-secret', setting], {git: TOKEN});
  });
  after(async () => {
    await cloud?.remove();
    await git?.close();
  });

  /** Waits until every job prints a version. */
  async function runs(version: string): Promise<void> {
    for (const id of JOBS) await cloud.prints(id, `${version} 0`);
  }

  it('exec is refused with one line where no worker runs', async () => {
    const {code, stdout, stderr} = await cloud.gleaner('exec', 'tpu', '--', 'true');
    assert.equal(code, 1, stdout);
    assert.match(stderr, /^cloud: .*\ngleaner: .*pool "tpu" has no running worker.*\n$/);
  });

  it('update starts jobs with the branch of their pool', async () => {
    git.commit('main', 'main.py', program('first'));
    await cloud.succeeds('update', 'tpu', '--repo', git.url, '--branch', 'main');
    for (const id of JOBS) await cloud.send(id, {command: ['python', 'main.py'], timeout: 1800});
    await runs('first');
  });

  it('exec runs on every host beside the jobs, and prints each line behind its host', async () => {
    const {code, stdout, stderr} = await cloud.gleaner('exec', 'tpu', '--', 'echo', 'a  b', '$HOME');
    assert.equal(code, 0, stderr);
    for (const worker of WORKERS) assert.match(stdout, new RegExp(`${worker}.*a {2}b \\$HOME`));
  });

  it('exec is a text for the shell with --shell, and its exit code is of the hosts', async () => {
    const {code, stdout} = await cloud.gleaner(
      'exec',
      'all',
      '--shell',
      '--',
      'echo $((6 * 7)); id -u; exit 3',
    );
    assert.equal(code, 1, stdout);
    assert.equal(stdout.match(/\b42$/gm)?.length, 2, stdout);
    if (process.getuid?.() === 0) assert.doesNotMatch(stdout, /: 0$/m, 'the job user is not root');
    const execs = await cloud.home.read(store => store.query('execs'));
    const exec = execs.find(({data}) => data.shell === true);
    assert.deepEqual([exec?.data.status, exec?.data.hosts, exec?.data.hosts_failed], ['done', 2, 2]);
    const hosts = await cloud.home.read(store => store.query(`execs/${exec?.id}/hosts`));
    assert.deepEqual(
      hosts.map(({data}) => [data.worker, data.status, data.exit_code]).sort(),
      WORKERS.map(worker => [worker, 'exited', 3]),
    );
  });

  it('exec ends at its timeout, on one worker alone', async () => {
    const [worker = ''] = WORKERS;
    const {code, stdout, stderr} = await cloud.gleaner('exec', worker, '--timeout', '1', '--', 'sleep', '60');
    assert.equal(code, 1, stdout);
    assert.match(stdout + stderr, new RegExp(`${worker}.*timeout`, 'i'));
  });

  it('discover names the hosts without exec', async () => {
    const {code, stdout} = await cloud.gleaner('discover');
    assert.equal(code, 0);
    for (const worker of WORKERS) assert.ok(stdout.includes(worker), stdout);
  });

  it('update restarts the jobs with a pull request', async () => {
    git.commit('refs/pull/7/head', 'main.py', program('second'));
    await cloud.succeeds('update', 'tpu', '--pr', '7');
    await runs('second');
  });

  it('update keeps the old code running where a branch does not exist, and names the branch', async () => {
    const {code, stdout, stderr} = await cloud.gleaner('update', 'tpu', '--branch', 'nowhere', '--no-check');
    assert.equal(code, 1, stdout);
    assert.match(stdout + stderr, /nowhere/);
    for (const id of JOBS) {
      const lines = (await cloud.output(id)).match(/second \d+/g)?.length ?? 0;
      await cloud.prints(id, `second ${lines + 4}`);
    }
  });

  it('update restarts the jobs with a branch of a private repository, and a job records the commit that ran', async () => {
    const commit = git.commit('main', 'main.py', 'print("the end")\n');
    git.token = TOKEN;
    const refused = await cloud.gleaner('update', 'tpu', '--branch', 'main');
    assert.equal(refused.code, 1, refused.stdout);
    assert.match(refused.stderr, /git_token_secret.*--no-check/);
    await cloud.succeeds('update', 'tpu', '--branch', 'main', '--no-check');
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
