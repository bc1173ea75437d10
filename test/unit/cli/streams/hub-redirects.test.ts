/** Redirects of a hostile hub: the token stays with the hub, and each read ends with the bytes or one sentence. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {openHub} from '../../../../cli/streams/sources/hub.ts';
import {CliError} from '../../../../client/text/errors.ts';
import {COMMIT, FakeHub} from './a-hub.ts';

const PATH = `/datasets/org/data/resolve/${COMMIT}/README.md`;
const TOKEN = 'hf_TokenOfTheTest';
const NO_WAITS = {attempts: 2, first_wait_ms: 1, longest_wait_ms: 2, silence_ms: 5000};

/** HUB, STORE: their addresses. ALIAS: another name of the hub's host. */
const targets = fc.constantFrom(
  PATH,
  `HUB${PATH}`,
  `STORE${PATH}`,
  `ALIAS${PATH}`,
  `//127.0.0.1:1${PATH}`,
  `http://user:word@STORE_HOST${PATH}`,
  `https://STORE_HOST${PATH}`,
  'http://169.254.169.254/latest',
  'http://host.example/',
  'http://[::1',
  'ftp://127.0.0.1/a',
  'file:///etc/passwd',
  'data:,x',
  '',
  '../'.repeat(200),
  `${PATH}?${'x'.repeat(100_000)}`,
);
const refusal = fc.record({
  status: fc.constantFrom(301, 302, 303, 307, 308),
  location: targets,
  more: fc.constantFrom({}, {'x-long': 'x'.repeat(200_000)}, {'set-cookie': 'a=b; Domain=127.0.0.1'}),
});

describe('A hub that redirects', () => {
  let hub: FakeHub;
  let store: FakeHub;
  beforeEach(async () => {
    const revisions = {main: {commit: COMMIT, files: {'README.md': Buffer.from('text')}}};
    [hub, store] = [await FakeHub.start(revisions), await FakeHub.start(revisions)];
  });
  afterEach(async () => {
    await hub.end();
    await store.end();
  });

  const clientOf = (endpoint: string) =>
    openHub({endpoint, token: TOKEN, retries: {...NO_WAITS, give_up_ms: 5000, read_ms: 5000}});

  const check = (numRuns: number) =>
    fc.assert(
      fc.asyncProperty(fc.array(refusal, {maxLength: 12}), async refusals => {
        hub.requests.length = store.requests.length = 0;
        hub.refusals.length = 0;
        for (const {status, location, more} of refusals)
          hub.refusals.push({status, headers: {...more, location: addressOf(location)}});
        try {
          assert.equal(await clientOf(hub.url).text(PATH, 'README.md', 1000), 'text');
        } catch (error) {
          assert.ok(error instanceof CliError, (error as Error).stack);
          assert.ok(error.message.length < 1000 && !error.message.includes(TOKEN), error.message);
          assert.ok(!/[\n\r]/.test(error.message));
        }
        const own = hub.url.slice('http://'.length);
        for (const {authorization, host} of [...hub.requests, ...store.requests])
          assert.ok(authorization === undefined || host === own, host);
        assert.ok(hub.requests.length < 30, String(hub.requests.length));
      }),
      {numRuns},
    );

  function addressOf(location: string): string {
    const alias = hub.url.replace('127.0.0.1', 'localhost');
    return location
      .replace('STORE_HOST', store.url.slice('http://'.length))
      .replace('STORE', store.url)
      .replace('ALIAS', alias)
      .replace('HUB', hub.url);
  }

  it('a hub that redirects leads no token away, and every read ends', () => check(60));
  it('a hub that redirects leads no token away, and every read ends, in many cases @long', () => check(5000));

  it('a hub that redirects without end is an error at once', async () => {
    for (let hop = 0; hop < 50; hop++) hub.refusals.push({status: 302, headers: {location: PATH}});
    await assert.rejects(clientOf(hub.url).text(PATH, 'README.md', 1000), /it redirects without end$/);
    assert.equal(hub.requests.length, 11);
  });

  it('a hub that redirects from https to http is refused before the request', async () => {
    const requested: string[] = [];
    const real = globalThis.fetch;
    globalThis.fetch = async url => {
      requested.push(String(url));
      return new Response(null, {status: 302, headers: {location: `${store.url}${PATH}`}});
    };
    try {
      await assert.rejects(
        clientOf('https://hub.example').text(PATH, 'README.md', 1000),
        /redirects to http:.* not an https:/,
      );
    } finally {
      globalThis.fetch = real;
    }
    assert.deepEqual(requested, [`https://hub.example${PATH}`]);
  });
});
