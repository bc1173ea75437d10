import assert from 'node:assert/strict';
import {execFile, spawnSync} from 'node:child_process';
import {mkdtempSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {promisify} from 'node:util';
import {gleaner, TestHome, texts} from '../support/machine/home.ts';

const WORKER = 'tpu-us-central1-a-0';

describe('gcloud on a local cloud with Gleaner', () => {
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

  it('starts, pauses, resumes and stops a run, lists and deletes a TPU, and lists the shards @long', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gleaner-input-'));
    const bucket = `gs://${home.ready.bucket}`;
    // The run is long enough for the commands of gcloud, which take seconds to start.
    writeFileSync(join(folder, 'run.json'), JSON.stringify({layers: '0-1', shard_size_gb: 0.001}));
    writeFileSync(join(folder, 'stream_000.jsonl'), texts(20_000, 'x'));
    const files = ['run.json', 'stream_000.jsonl'].map(name => join(folder, name));
    await gcloud('storage', 'cp', ...files, `${bucket}/datasets/my-run/`);
    const view = () => home.view('my-run');
    const publish = (action: string) =>
      gcloud(
        'pubsub',
        'topics',
        'publish',
        'control',
        `--message=${JSON.stringify({action, run: 'my-run'})}`,
      );
    const list = () =>
      gcloud('compute', 'tpus', 'tpu-vm', 'list', '--zone=us-central1-a', '--format=value(name,state)');
    const isAtWork = (found: Awaited<ReturnType<typeof view>>) =>
      found?.streams[0]?.status === 'in_progress' && found.streams[0].total_shards > 0;
    await home.until('work', view, isAtWork);
    assert.match(await list(), new RegExp(`${WORKER}\\s+READY`));

    await publish('pause');
    await home.until('the pause', view, v => v?.run.status === 'paused' && v.workers.length === 0);
    await publish('resume');
    const resumed = await home.until('work again', view, v => v?.workers[0]?.phase === 'working');

    await gcloud('compute', 'tpus', 'tpu-vm', 'delete', WORKER, '--zone=us-central1-a', '--quiet');
    const incarnation = resumed?.workers[0]?.incarnation ?? 0;
    const shards = resumed?.streams[0]?.total_shards ?? 0;
    await home.until(
      'shards of the next incarnation',
      view,
      v =>
        (v?.workers[0]?.incarnation ?? 0) > incarnation &&
        isAtWork(v) &&
        (v?.streams[0]?.total_shards ?? 0) > shards,
    );

    await publish('stop');
    const ended = await home.runEnds('my-run');
    assert.equal(ended?.run.status, 'stopped');
    const names = (await gcloud('storage', 'ls', `${bucket}/activations/my-run/tpu_0/`)).trim().split('\n');
    const stored = names.filter(name => name.endsWith('.safetensors')).length;
    await home.until('the count of every shard', view, v => v?.run.total_shards === stored);
    assert.equal((await list()).trim(), '');
  });
});

/** Variables that `eval "$(gleaner local env)"` sets in a shell. */
async function exported(home: TestHome): Promise<Record<string, string>> {
  const {stdout} = await gleaner(['local', 'env', '--port', new URL(home.ready.url).port]);
  return Object.fromEntries(
    [...stdout.matchAll(/^export (\w+)='?(.*?)'?$/gm)].map(([, name = '', value = '']) => [name, value]),
  );
}
