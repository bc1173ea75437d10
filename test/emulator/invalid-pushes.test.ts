import assert from 'node:assert/strict';
import {type ChildProcess, fork} from 'node:child_process';
import {createHash} from 'node:crypto';
import {once} from 'node:events';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {HOST_HEADER} from '../../emulator/guard.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {Scratch} from './a-cloud.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
/** No server listens on this port. */
const NOWHERE = 'http://127.0.0.1:9';
const NAMES = ['on-control', 'on-object', 'on-tpu', 'on-task', 'on-tick'];

/** The real functions in their host, with a store and without a cloud. */
describe('A push that no function can read', () => {
  const scratch = new Scratch();
  const store_file = join(scratch.dir(), 'state.db');
  let host: ChildProcess;
  let ports: Record<string, number>;
  let said = '';
  before(async () => {
    const env = {
      ...process.env,
      GLEANER_LOCAL_TOKEN: 'secret',
      GLEANER_PROJECT: 'my-project',
      GLEANER_BUCKET: 'my-bucket',
      GLEANER_WORKER_API: `${NOWHERE}/worker-api`,
      GLEANER_BUNDLE: 'c'.repeat(64),
      GLEANER_STORE: `sqlite:${store_file}`,
      GLEANER_STORAGE_ENDPOINT: NOWHERE,
      GLEANER_TPU_ENDPOINT: NOWHERE,
      PUBSUB_EMULATOR_HOST: '127.0.0.1:9',
    };
    const args = [here('../../functions/index.ts'), ...NAMES];
    host = fork(here('../../emulator/function-host.ts'), args, {
      env,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    for (const stream of [host.stdout, host.stderr]) stream?.on('data', chunk => (said += chunk));
    [{ports}] = (await once(host, 'message')) as [{ports: Record<string, number>}];
  });
  after(async () => {
    host.kill('SIGKILL');
    await scratch.end();
  });

  /** Pushes a body to a function, and returns the status of the answer and the log of the call. */
  const push = async (name: string, body: unknown): Promise<{status: number; log: string}> => {
    said = '';
    const answer = await fetch(`http://127.0.0.1:${ports[name]}/projects/my-project/topics/x`, {
      method: 'POST',
      headers: {'content-type': 'application/json', [HOST_HEADER]: 'secret'},
      body: JSON.stringify(body),
    });
    await new Promise(resolve => setTimeout(resolve, 20));
    return {status: answer.status, log: said};
  };
  const record = async (id: string) => {
    const store = openSqliteStore(store_file);
    try {
      return await store.get(`control/${id}`);
    } finally {
      await store.close();
    }
  };
  const times = {messageId: '41', message_id: '41', publishTime: '2026-11-22T10:00:00Z'};
  const subscription = 'projects/my-project/subscriptions/s';
  const data = Buffer.from('{"action":"pause","run":"my-run"}').toString('base64');
  const digest = (body: unknown) => createHash('sha256').update(JSON.stringify(body)).digest('hex');

  const bodies: {name: string; body: unknown; says: RegExp; id?: string}[] = [
    {
      name: 'with attributes and without data',
      body: {message: {...times, data: '', attributes: {action: 'pause'}}, subscription},
      ...{says: /The message has no data: publish the command as its data/, id: '41'},
    },
    {
      name: 'with data that are a list',
      body: {message: {...times, messageId: '42', data: ['x']}, subscription},
      ...{says: /control event is not valid: message.data/, id: '42'},
    },
    {
      name: 'with data that are not base64',
      body: {message: {...times, messageId: '43', data: '{}'}, subscription},
      ...{says: /base64/, id: '43'},
    },
    {
      name: 'without a publish time',
      body: {message: {data: '', attributes: {}, messageId: '44'}, subscription},
      ...{says: /no data/, id: '44'},
    },
    {
      name: 'with an unreadable publish time',
      body: {message: {data: 'eA==', publishTime: 'noon'}, subscription},
      says: /The message has no publishTime, so its order is unknown/,
    },
    {name: 'without an id', body: {message: {data}, subscription}, says: /no publishTime/},
    {
      name: 'with an id that is an object',
      body: {message: {data, messageId: {a: 1}}},
      says: /no publishTime/,
    },
    {name: 'without a message', body: {subscription}, says: /expected an object/},
    {name: 'that is a list', body: [1, 2], says: /control event is not valid/},
    {name: 'that is a command itself', body: {action: 'pause', run: 'my-run'}, says: /not valid/},
  ];
  for (const {name, body, says, id} of bodies)
    it(`${name} is recorded by on-control with its id and a reason, and acknowledged`, async () => {
      const {status, log} = await push('on-control', body);
      assert.equal(status, 204, log);
      const {outcome, reason} = (await record(id ?? digest(body))) ?? assert.fail('no record');
      assert.equal(outcome, 'rejected');
      assert.match(String(reason), says);
    });

  for (const {name, body, id} of bodies)
    it(`${name} is logged by the other functions as an error, and acknowledged`, async () => {
      for (const other of ['on-object', 'on-tpu', 'on-task']) {
        const {status, log} = await push(other, body);
        assert.equal(status, 204, `${other}: ${log}`);
        const entry = JSON.parse(log.trim().split('\n').at(-1) ?? '');
        assert.equal(entry.severity, 'ERROR', log);
        const {function: named, message_id} = entry['logging.googleapis.com/labels'];
        assert.equal(named, other);
        if (id) assert.equal(message_id, id);
      }
    });

  it('of a message that the functions understand, but without a service to ask, is refused and comes again', async () => {
    const attributes = {eventType: 'OBJECT_FINALIZE', bucketId: 'my-bucket', objectGeneration: '1'};
    const objectId = 'datasets/my-run/stream_000.jsonl';
    const message = {...times, data: 'e30=', attributes: {...attributes, objectId}};
    const {status} = await push('on-object', {message, subscription});
    assert.equal(status, 500);
    const elsewhere = {...message, attributes: {...message.attributes, bucketId: 'other'}};
    assert.equal((await push('on-object', {message: elsewhere, subscription})).status, 204);
    const deleted = {...message, attributes: {...message.attributes, eventType: 'OBJECT_DELETE'}};
    assert.equal((await push('on-object', {message: deleted, subscription})).status, 204);
  });
});
