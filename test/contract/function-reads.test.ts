import assert from 'node:assert/strict';
import {type ChildProcess, fork} from 'node:child_process';
import {once} from 'node:events';
import {fileURLToPath} from 'node:url';
import {HOST_HEADER} from '../../emulator/http/guard.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {type FaultProxy, startFaultProxy} from '../support/fakes/fault-proxy.ts';
import {useLocalCloud} from './local-cloud.ts';
import {bytes} from './objects-contract.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

describe('A read in a function @full', () => {
  const cloud = useLocalCloud({storage_only: true});
  const name = 'datasets/my-run/run.json';
  let proxy: FaultProxy;
  let host: ChildProcess;
  let ports: Record<string, number>;

  before(async () => {
    const {project, bucket, url, token} = cloud();
    proxy = await startFaultProxy(url);
    await openObjects({project, bucket, endpoint: url, token}).create(name, bytes('{}'));
    const env = {
      ...process.env,
      ENDPOINT: proxy.url,
      BUCKET: bucket,
      NAME: name,
      TOKEN: token,
      GLEANER_LOCAL_TOKEN: 'secret',
    };
    host = fork(
      here('../../emulator/functions/function-host.ts'),
      [here('./reading-functions.ts'), 'guarded', 'bare'],
      {env, stdio: ['ignore', 'ignore', 'ignore', 'ipc']},
    );
    [{ports}] = (await once(host, 'message')) as [{ports: Record<string, number>}];
  });
  after(async () => {
    host.kill('SIGKILL');
    await proxy.close();
  });

  async function call(name: string): Promise<{status: number; body: string}> {
    const headers = {[HOST_HEADER]: 'secret'};
    const answer = await fetch(`http://127.0.0.1:${ports[name]}/`, {
      headers,
      signal: AbortSignal.timeout(20_000),
    });
    return {status: answer.status, body: await answer.text()};
  }

  for (const instruction of ['return-408', 'return-429', 'return-503', 'return-reset-connection'])
    it(`succeeds after ${instruction}, and the function goes on`, async () => {
      proxy.breakNext('download', [instruction]);
      assert.deepEqual(await call('guarded'), {status: 200, body: '{}'});
      assert.deepEqual(proxy.left(), []);
      assert.equal(host.exitCode, null);
    });

  it('fails in its own promise when the outage outlasts the retries', async () => {
    proxy.breakNext('download', Array(5).fill('return-503'));
    const {status, body} = await call('guarded');
    assert.equal(status, 500);
    assert.match(body, /^Failed to read gs:.* 503, after 5 attempts/);
    assert.deepEqual(await call('guarded'), {status: 200, body: '{}'});
  });

  /** When this test fails, the decision of 2026-11-23 on retries of our own can go. */
  it('of the storage client without our adapter still throws outside of every promise after one 503', async function () {
    if (Number(process.versions.node.split('.')[0]) < 24) this.skip();
    proxy.breakNext('download', ['return-503']);
    const body = 'Cannot pipe to a closed or destroyed stream';
    assert.deepEqual(await call('bare'), {status: 500, body});
  });
});
