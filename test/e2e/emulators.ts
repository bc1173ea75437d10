/** Tests of a local cloud whose Firestore and Pub/Sub are Google's emulators. */
import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {join} from 'node:path';
import {promisify} from 'node:util';
import {type DocumentReference, FieldValue, Firestore, Timestamp} from '@google-cloud/firestore';
import {quoted} from '../../client/text/output.ts';
import {blocksOf} from '../support/docs/doc-blocks.ts';
import {gleaner, processes, type TestHome, texts} from '../support/machine/home.ts';

const execute = promisify(execFile);

/** For a stream that is still at work when the preemption comes. */
const LONG_SPEC = JSON.stringify({layers: '0-1', shard_size_gb: 0.001});

const JOB_OF_SEEDS = `
import jax
import jax.numpy as jnp

# Your JAX/TPU code here
x = jnp.ones((1000, 1000))
result = jnp.dot(x, x).sum()
logger.info(f'Result: {result}')
`;

/** Adds a job as a client of Firestore does. The job shares the VM of the runs. */
export async function addJobOfSeeds({ready}: TestHome): Promise<DocumentReference> {
  const database = new Firestore({projectId: ready.project, databaseId: 'gleaner', ssl: false});
  return database.collection('jobs').add({
    challenge_number: 42,
    code: JOB_OF_SEEDS,
    timeout: 300,
    status: 'pending',
    created_at: FieldValue.serverTimestamp(),
  });
}

type Cloud = () => {home: TestHome; job: DocumentReference};

/** Declares the tests of a cloud with Google's emulators. The last test ends the cloud. */
export function testEmulators(cloud: Cloud): void {
  testWork(cloud);
  testClients(cloud);
  testEnd(cloud);
}

function testWork(cloud: Cloud): void {
  it('recovers from a preemption in the middle of a stream @long', async () => {
    const {home} = cloud();
    await home.drop('datasets/second/run.json', LONG_SPEC);
    await home.drop('datasets/second/stream_000.jsonl', texts(3000, 'a'));
    await home.drop('datasets/second/stream_001.jsonl', texts(60, 'b'));
    const working = await home.until(
      'a shard of a stream at work',
      () => home.view('second'),
      found => found?.streams.some(({lease, total_shards}) => lease && total_shards > 0) ?? false,
    );
    const {lease, stream} =
      working.streams.find(each => each.lease && each.total_shards > 0) ?? assert.fail();
    await home.fault('preempt', lease?.worker ?? '');
    const view = (await home.runEnds('second')) ?? assert.fail();
    assert.equal(view.run.status, 'completed', JSON.stringify(view));
    const {ok, stored_once, problems} = await home.verify('second');
    assert.deepEqual({ok, stored_once, problems}, {ok: true, stored_once: 3060, problems: []});
    const lost = view.streams.find(each => each.stream === stream);
    assert.equal(lost?.epoch, 2, 'the lease of another worker life');
  });

  it("runs a job whose document has the shape of the seeds' job service, written by a client of Firestore", async () => {
    const {home, job} = cloud();
    const found = await home.until(
      'the end of the job',
      async () => (await job.get()).data(),
      data => ['completed', 'failed'].includes(data?.status),
    );
    assert.deepEqual(
      [found?.status, found?.error, found?.challenge_number, found?.job],
      ['completed', null, 42, job.id],
    );
    assert.equal(Number(found?.result), 1e9);
    for (const time of ['created_at', 'scheduled_at', 'started_at', 'completed_at', 'updated_at'])
      assert.ok(found?.[time] instanceof Timestamp, time);
  });
}

/** Tests of browsers, and of programs that use Google's clients. */
function testClients(cloud: Cloud): void {
  it('has pages, which follow its Firestore', async () => {
    const {home, job} = cloud();
    const {origin} = new URL(home.ready.dashboard);
    const opened = await fetch(home.ready.dashboard, {redirect: 'manual'});
    const cookie = opened.headers.get('set-cookie')?.split(';')[0] ?? '';
    const read = async (path: string) => {
      const answer = await fetch(origin + path, {headers: {cookie}});
      const text = await answer.text();
      assert.ok(answer.ok && !text.includes('does not answer'), `${path}: ${text}`);
      return text;
    };
    const polledAt = (text: string) => /id="fresh">[\s\S]*?datetime="([^"]+)"/.exec(text)?.[1];
    for (const path of ['/', '/fleet', '/jobs', `/jobs/${job.id}`, '/events', '/documents/runs/first']) {
      const first = polledAt(await read(path));
      await home.until(
        `a second poll of ${path}`,
        () => read(path),
        text => polledAt(text) !== first,
      );
    }
    assert.match(await read('/runs/first'), /first/);
  });

  it('takes the job of the Python of docs/jobs.md as it stands, and jobs follow prints its result @long', async () => {
    const {home} = cloud();
    const python = join(home.dir, 'client', 'bin', 'python');
    await execute('python3', ['-m', 'venv', join(home.dir, 'client')]);
    await execute(python, ['-m', 'pip', 'install', '--quiet', 'google-cloud-firestore']);
    const [block] = blocksOf('docs/jobs.md').filter(({info}) => info === 'python');
    const exported = (await gleaner(['local', 'env', '--dir', home.dir])).stdout;
    const lines = [
      `eval ${quoted(exported)}`,
      `exec ${quoted(python)} -c ${quoted(block?.lines.join('\n') ?? '')}`,
    ];
    const {stdout: id} = await execute('bash', ['-c', lines.join('\n')]);
    const followed = await gleaner(['jobs', 'follow', id.trim(), '--dir', home.dir]);
    assert.equal(followed.code, 0, followed.stderr);
    assert.match(followed.stdout + followed.stderr, /result +1000000|result +1e\+06/);
  });

  it('records messages under their ids, also a message that Google delivers without data', async () => {
    const {home} = cloud();
    const publish = async (message: object) => {
      const {url, project} = home.ready;
      const answer = await fetch(`${url}/v1/projects/${project}/topics/control:publish`, {
        method: 'POST',
        headers: {'content-type': 'application/json', authorization: `Bearer ${home.token}`},
        body: JSON.stringify({messages: [message]}),
      });
      return ((await answer.json()) as {messageIds: string[]}).messageIds[0] ?? '';
    };
    const ids = [
      await publish({data: Buffer.from('{"action":"pause","run":"none"}').toString('base64')}),
      await publish({attributes: {action: 'pause'}}),
    ];
    const reasons = [/there is no run "none"/, /The message has no data/];
    for (const [index, id] of ids.entries()) {
      const found = await home.until(
        `the record of message ${id}`,
        () => home.read(store => store.get(`control/${id}`)),
        record => record !== undefined,
      );
      assert.match(String(found?.reason), reasons[index] ?? /^$/);
    }
  });
}

/** The Java processes that serve the emulators of the cloud. */
async function emulatorsOf(home: TestHome): Promise<() => number> {
  const {firestore_endpoint, pubsub_endpoint} = await home.state();
  const ports = [firestore_endpoint, pubsub_endpoint].map(host => `--port=${host?.split(':')[1]}`);
  return () =>
    processes().filter(({pid, pgid, args}) => pid === pgid && ports.some(port => args.endsWith(port))).length;
}

function testEnd(cloud: Cloud): void {
  it('ends the emulators with a killed cloud, and makes the documents again from the bucket @long', async () => {
    const {home} = cloud();
    const before = await home.view('first');
    const running = await emulatorsOf(home);
    assert.equal(running(), 2);
    await home.killHard();
    await home.until(
      'the end of the emulators',
      async () => running(),
      count => count === 0,
    );
    const stopped = await gleaner(['status', 'first', '--dir', home.dir]);
    assert.equal(stopped.code, 1);
    assert.match(
      stopped.stderr,
      /^gleaner: Google's Firestore emulator had the documents of this stopped cloud: start the cloud with `gleaner local up --emu/m,
    );
    await home.up();
    const view = await home.until(
      'the run of the bucket',
      () => home.view('first'),
      found => found?.run.status === 'completed',
    );
    assert.equal(view?.run.total_samples_processed, before?.run.total_samples_processed);
    const again = await emulatorsOf(home);
    await home.stop();
    assert.equal(again(), 0);
  });
}
