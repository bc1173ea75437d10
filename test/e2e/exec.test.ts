import assert from 'node:assert/strict';
import {JobHome} from './job-home.ts';

const WORKERS = ['tpu-us-central1-a-0', 'tpu-us-central1-a-1'];

describe('A command on the hosts of a local cloud', () => {
  let cloud: JobHome;
  before(async () => {
    cloud = await JobHome.start(2);
  });
  after(() => cloud?.remove());

  it('is refused with one line where no worker runs', async () => {
    const {code, stdout, stderr} = await cloud.gleaner('exec', 'tpu', '--', 'true');
    assert.equal(code, 1, stdout);
    assert.match(stderr, /pool "tpu" has no running worker/);
    assert.equal(stderr.trim().split('\n').length, 1, stderr);
  });

  it('runs on every host beside the jobs, and prints each line behind its host', async () => {
    for (const id of ['first', 'second']) await cloud.send(id, {command: 'echo up; sleep 600', timeout: 900});
    for (const id of ['first', 'second']) await cloud.prints(id, 'up');
    const {code, stdout, stderr} = await cloud.gleaner('exec', 'tpu', '--', 'echo', 'a  b', '$HOME');
    assert.equal(code, 0, stderr);
    for (const worker of WORKERS) assert.match(stdout, new RegExp(`${worker}.*a {2}b \\$HOME`));
  });

  it('is a text for the shell with --shell, and its exit code is of the hosts', async () => {
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

  it('ends at its timeout, on one worker alone', async () => {
    const [worker = ''] = WORKERS;
    const {code, stdout, stderr} = await cloud.gleaner('exec', worker, '--timeout', '1', '--', 'sleep', '60');
    assert.equal(code, 1, stdout);
    assert.match(stdout + stderr, new RegExp(`${worker}.*timeout`, 'i'));
  });

  it('is not needed to learn the names of the hosts', async () => {
    const {code, stdout} = await cloud.gleaner('discover');
    assert.equal(code, 0);
    for (const worker of WORKERS) assert.ok(stdout.includes(worker), stdout);
  });
});
