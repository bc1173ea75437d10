import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {join} from 'node:path';
import triggers from '../../functions/triggers.json' with {type: 'json'};
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {Scratch} from '../support/machine/a-cloud.ts';
import {Host} from './a-host.ts';

const NAMES = ['on-control', 'on-object', 'on-tpu', 'on-task'];
const subscription = 'projects/my-project/subscriptions/s';
const data = Buffer.from('{"action":"pause","run":"my-run"}').toString('base64');
const times = {messageId: '41', message_id: '41', publishTime: '2026-11-22T10:00:00Z'};

describe('A push that no function can read', () => {
  const scratch = new Scratch();
  const store_file = join(scratch.dir(), 'state.db');
  let host: Host;
  before(async () => {
    host = await Host.start(NAMES, {GLEANER_STORE: `sqlite:${store_file}`});
  });
  after(async () => {
    host.stop();
    await scratch.end();
  });

  const record = async (id: string) => {
    const store = openSqliteStore(store_file);
    try {
      return await store.get(`control/${id}`);
    } finally {
      await store.close();
    }
  };
  const digest = (body: unknown) => {
    const counted = (body as {message?: unknown}).message ?? body;
    return createHash('sha256').update(JSON.stringify(counted)).digest('hex');
  };

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
      body: {message: {data, publishTime: 'noon'}, subscription},
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
      const {status, log} = await host.push('on-control', body);
      assert.equal(status, 204, log);
      const {outcome, reason} = (await record(id ?? digest(body))) ?? assert.fail('no record');
      assert.equal(outcome, 'rejected');
      assert.match(String(reason), says);
    });

  for (const {name, body, id} of bodies)
    it(`${name} is logged by the other functions as an error, and acknowledged`, async () => {
      for (const other of ['on-object', 'on-tpu', 'on-task']) {
        const {status, log} = await host.push(other, body);
        assert.equal(status, 204, `${other}: ${log}`);
        const entry = JSON.parse(log.trim().split('\n').at(-1) ?? '');
        assert.equal(entry.severity, 'ERROR', log);
        const {function: named, message_id} = entry['logging.googleapis.com/labels'];
        assert.equal(named, other);
        if (id) assert.equal(message_id, id);
      }
    });
});

describe('A notification of an object', () => {
  const scratch = new Scratch();
  let host: Host;
  before(async () => {
    host = await Host.start(['on-object'], {GLEANER_STORE: `sqlite:${join(scratch.dir(), 'state.db')}`});
  });
  after(async () => {
    host.stop();
    await scratch.end();
  });
  const push = (changes: Record<string, string>) => {
    const object = {
      bucketId: 'my-bucket',
      objectId: 'datasets/my-run/stream_000.jsonl',
      objectGeneration: '1',
    };
    const attributes = {eventType: 'OBJECT_FINALIZE', ...object, ...changes};
    return host.push('on-object', {message: {...times, data: 'e30=', attributes}, subscription});
  };

  it('of another bucket or of another type of event is acknowledged without work', async () => {
    for (const changes of [{bucketId: 'other'}, {eventType: 'OBJECT_DELETE'}])
      assert.deepEqual(await push(changes), {status: 204, log: ''});
  });

  it('is refused while Cloud Storage cannot be reached, so it is delivered again @long', async () => {
    assert.equal((await push({})).status, 500);
  });
});

describe('A push while Firestore cannot be reached', () => {
  it('is refused within the time limit of the function, so it is delivered again @long', async () => {
    const host = await Host.start(['on-control'], {GLEANER_STORE: 'firestore:gleaner'});
    try {
      const began = Date.now();
      const {status, log} = await host.push('on-control', {message: {...times, data}, subscription});
      assert.equal(status, 500, log);
      assert.match(log, /"severity":"ERROR".*UNAVAILABLE/);
      const {timeout_s} = triggers.functions.find(({name}) => name === 'on-control') ?? assert.fail();
      assert.ok(Date.now() - began < timeout_s * 1000, `${Date.now() - began} ms`);
    } finally {
      host.stop();
    }
  });
});
