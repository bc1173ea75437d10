/** The scenarios of Google's retry conformance tests for Cloud Storage, for the calls of Objects. */
import assert from 'node:assert/strict';
import {openObjects} from '../../shared/google/objects.ts';
import {STORAGE_RETRIES} from '../../shared/google/retry.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {type FaultProxy, type Operation, startFaultProxy} from '../support/fakes/fault-proxy.ts';
import {useLocalCloud} from './local-cloud.ts';

const KIB = 1024;

type Call = {
  operation: Operation;
  /** `content` is stored under the name, except before a create. The result is what `succeeds` promises. */
  run: (objects: Objects, name: string, content: Buffer) => Promise<unknown>;
  succeeds: (name: string, content: Buffer) => unknown;
};

const CALLS = {
  list: {
    operation: 'list',
    run: async (objects, name) => (await objects.list(name)).map(object => object.name),
    succeeds: name => [name],
  },
  head: {
    operation: 'get',
    run: async (objects, name) => (await objects.head(name))?.size_bytes,
    succeeds: (_, content) => content.length,
  },
  read: {
    operation: 'download',
    run: async (objects, name, content) => objects.read(name, {max_bytes: content.length}),
    succeeds: (_, content) => content,
  },
  create: {
    operation: 'insert',
    run: async (objects, name, content) => objects.create(name, content),
    succeeds: () => 'created',
  },
  replace: {
    operation: 'insert',
    run: async (objects, name, content) =>
      objects.replace(name, (await objects.head(name))?.generation ?? '', content),
    succeeds: () => 'replaced',
  },
  delete: {operation: 'delete', run: (objects, name) => objects.delete(name), succeeds: () => undefined},
} satisfies Record<string, Call>;

type Case = {
  scenario: string;
  call: keyof typeof CALLS;
  instructions: string[];
  /** Result of the call, or the status in its error. Without `ends` the call succeeds. */
  ends?: string | number | undefined;
};

const PASSING = [
  ['return-503', 'return-503'],
  ['return-reset-connection', 'return-reset-connection'],
  ['return-reset-connection', 'return-503'],
];
const OTHER_STATUSES = [408, 429, 500, 502, 504].map(status => [`return-${status}`, `return-${status}`]);
const PERMANENT: [string[], number][] = [
  [['return-400'], 400],
  [['return-401'], 401],
];
const MIXED: [string[], number][] = [
  [['return-503', 'return-400'], 400],
  [['return-reset-connection', 'return-401'], 401],
];

function cases(scenario: string, calls: Case['call'][], ...lists: string[][]): Case[] {
  return calls.flatMap(call => lists.map(instructions => ({scenario, call, instructions})));
}

function failing(scenario: string, calls: Case['call'][], lists: [string[], number][]): Case[] {
  return calls.flatMap(call => lists.map(([instructions, ends]) => ({scenario, call, instructions, ends})));
}

const LISTED: Case[] = [
  ...cases('1, always idempotent', ['list', 'head', 'read'], ...PASSING),
  ...cases('1, always idempotent', ['read'], ...OTHER_STATUSES),
  ...cases('2, idempotent with a precondition', ['create'], ...PASSING, ...OTHER_STATUSES),
  ...cases('2, idempotent with a precondition', ['replace'], ['return-503', 'return-503']),
  {scenario: '2, a lost answer', call: 'create', instructions: ['return-503-after-commit'], ends: 'exists'},
  {scenario: '2, a lost answer', call: 'replace', instructions: ['return-503-after-commit'], ends: 'changed'},
  ...failing(
    '3 and 4, no precondition',
    ['delete'],
    [
      [['return-503'], 503],
      [['return-reset-connection'], 0],
    ],
  ),
  ...failing('5, an error that does not pass', ['read', 'create'], PERMANENT),
  ...failing('6, an error that does not pass after one that passes', ['read', 'create'], MIXED),
  ...cases('7, an upload', ['create'], ['return-reset-connection', 'return-503'], ['return-408']),
  ...cases('7, an upload', ['create'], ['return-503-after-256K'], ['return-503-after-8192K', 'return-408']),
  ...cases('8, a download', ['read'], ['return-broken-stream'], ['return-broken-stream-after-256K']),
];
/** An instruction "after N KiB" needs a larger object. */
const CASES = LISTED.map(each => {
  const isLarge = each.instructions.some(instruction => instruction.includes('8192K'));
  return {...each, size_bytes: (isLarge ? 9 * KIB : 300) * KIB};
});

describe('Objects: retries of Cloud Storage @full', () => {
  const cloud = useLocalCloud({storage_only: true});
  const retries = {...STORAGE_RETRIES, first_wait_ms: 2};
  let proxy: FaultProxy;
  let objects: Objects;
  let direct: Objects;

  before(async () => {
    const {project, bucket, url, token} = cloud();
    proxy = await startFaultProxy(url);
    objects = openObjects({project, bucket, endpoint: proxy.url, token, retries});
    direct = openObjects({project, bucket, endpoint: url, token});
  });
  after(() => proxy.close());

  for (const [index, {scenario, call, instructions, ends, size_bytes}] of CASES.entries()) {
    const end = ends === undefined ? 'succeeds' : typeof ends === 'string' ? `is "${ends}"` : 'fails';
    it(`scenario ${scenario}: ${call} ${end} after ${instructions.join(', ')}`, async () => {
      const {operation, run, succeeds}: Call = CALLS[call];
      const name = `scenarios/${index}`;
      const content = Buffer.alloc(size_bytes, `${index} `);
      if (call !== 'create') await direct.create(name, content);
      proxy.breakNext(operation, instructions);
      const result = run(objects, name, content);
      if (typeof ends === 'number')
        await assert.rejects(result, ({message, cause}: Error) => {
          assert.match(message, new RegExp(`^Failed to .* gs://.*/${name}: .*${ends || 'ECONNRESET'}`));
          return cause !== undefined;
        });
      else {
        assert.deepEqual(await result, ends ?? succeeds(name, content));
        if (call !== 'delete')
          assert.ok(content.equals((await direct.read(name, {max_bytes: size_bytes})) ?? Buffer.alloc(0)));
      }
      assert.deepEqual(proxy.left(), []);
      const attempts = proxy.seen().filter(seen => seen.operation === operation);
      assert.equal(attempts.length, instructions.length + (typeof ends === 'number' ? 0 : 1));
    });
  }
});
