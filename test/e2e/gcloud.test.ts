import assert from 'node:assert/strict';
import {execFile, spawnSync} from 'node:child_process';
import {mkdtempSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {promisify} from 'node:util';
import {E2E_MS, gleaner, TestHome, texts} from './home.ts';

const WORKER = 'tpu-us-central1-a-0';

describe('gcloud, a client that nobody here wrote, drives the local cloud', function () {
  this.timeout(E2E_MS);
  let home: TestHome;
  let env: NodeJS.ProcessEnv;
  before(async function () {
    if (spawnSync('gcloud', ['--version']).error) {
      if (process.env.CI) throw new Error('gcloud is missing, and CI needs it');
      console.log('  skipped: gcloud is not installed');
      this.skip();
    }
    home = await TestHome.start(1);
    env = {
      ...process.env,
      CLOUDSDK_CONFIG: mkdtempSync(join(tmpdir(), 'gcloud-config-')),
      ...(await exported(home)),
    };
  });
  after(() => home?.remove());

  const gcloud = async (...args: string[]) => (await promisify(execFile)('gcloud', args, {env})).stdout;

  it('starts, pauses and resumes a run, shows its TPUs, loses one and reads the shards', async () => {
    const file = join(mkdtempSync(join(tmpdir(), 'gleaner-input-')), 'x.jsonl');
    const bucket = `gs://${home.ready.bucket}`;
    // Enough work for gcloud, which takes seconds to start, to find the run at work each time.
    writeFileSync(`${file}.spec`, JSON.stringify({layers: '0-1', shard_size_gb: 0.001}));
    writeFileSync(file, texts(10_000, 'x'));
    await gcloud('storage', 'cp', `${file}.spec`, `${bucket}/datasets/my-run/run.json`);
    await gcloud('storage', 'cp', file, `${bucket}/datasets/my-run/stream_000.jsonl`);
    const view = () => home.view('my-run');
    await home.until(
      'work',
      view,
      v => v?.streams[0]?.status === 'in_progress' && v.streams[0].total_shards > 0,
    );

    const listed = await gcloud(
      'compute',
      'tpus',
      'tpu-vm',
      'list',
      '--zone=us-central1-a',
      '--format=value(name,state)',
    );
    assert.match(listed, new RegExp(`${WORKER}\\s+READY`));

    await gcloud('pubsub', 'topics', 'publish', 'control', '--message={"action":"pause","run":"my-run"}');
    await home.until('the pause', view, v => v?.run.status === 'paused' && v.workers.length === 0);
    await gcloud('pubsub', 'topics', 'publish', 'control', '--message={"action":"resume","run":"my-run"}');
    const resumed = await home.until('work again', view, v => v?.workers[0]?.phase === 'working');

    await gcloud('compute', 'tpus', 'tpu-vm', 'delete', WORKER, '--zone=us-central1-a', '--quiet');
    const incarnation = resumed?.workers[0]?.incarnation ?? 0;
    await home.until(
      'the next life',
      view,
      v => (v?.workers[0]?.incarnation ?? 0) > incarnation || v?.run.status === 'completed',
    );

    const ended = await home.runEnds('my-run');
    assert.equal(ended?.run.status, 'completed');
    assert.equal((await home.verify('my-run')).ok, true);
    const names = (await gcloud('storage', 'ls', `${bucket}/activations/my-run/tpu_0/`)).trim().split('\n');
    assert.equal(names.filter(name => name.endsWith('.safetensors')).length, ended?.run.total_shards);
    const metadata = JSON.parse(
      await gcloud('storage', 'cat', `${bucket}/activations/my-run/tpu_0/metadata.json`),
    );
    assert.equal(metadata.total_samples, 10_000);
    const left = await gcloud(
      'compute',
      'tpus',
      'tpu-vm',
      'list',
      '--zone=us-central1-a',
      '--format=value(name)',
    );
    assert.equal(left.trim(), '');
  });
});

/** What `eval "$(gleaner local env)"` sets in a shell. */
async function exported(home: TestHome): Promise<Record<string, string>> {
  const {stdout} = await gleaner(['local', 'env', '--port', new URL(home.ready.url).port]);
  return Object.fromEntries(
    [...stdout.matchAll(/^export (\w+)='?(.*?)'?$/gm)].map(([, name = '', value = '']) => [name, value]),
  );
}
