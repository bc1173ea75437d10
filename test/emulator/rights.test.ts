import assert from 'node:assert/strict';
import {inspect} from 'node:util';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {accessTokenOf, narrowedTokenOf} from '../../emulator/http/access-tokens.ts';
import type {Boundary} from '../../emulator/http/boundary.ts';
import {type HttpServer, serve} from '../../emulator/http/http.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {openObjectTokens, ruleOf} from '../../shared/google/object-tokens.ts';
import {Scratch, tokenUrl} from '../support/machine/a-cloud.ts';

const ACCOUNTS = accountsOf('gleaner-local', 'gleaner');
const SHARD = 'activations/my-run/tpu_0/shard_0001.safetensors';
const MANIFEST = 'activations/my-run/manifest.json';
const BUNDLE = 'bundles/a.tar.gz';
const SPEC = 'datasets/x/run.json';

const upload = (name: string, more = '') =>
  `/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=${encodeURIComponent(name)}${more}`;
const at = (name: string) => `/storage/v1/b/gleaner-local/o/${encodeURIComponent(name)}`;
const send = (url: string, method: string, path: string, headers: Record<string, string>) =>
  fetch(`${url}${path}`, {method, headers, ...(method === 'POST' ? {body: '{}'} : {})});

type Asked = [who: keyof typeof ACCOUNTS, does: string, method: string, path: string, status: number];

const REQUESTS: Asked[] = [
  ['worker', 'reads a bundle', 'GET', at(BUNDLE), 200],
  ['worker', 'writes a bundle', 'POST', upload('bundles/x.tar.gz'), 403],
  ['worker', 'frees a stopped run', 'DELETE', at('system/stops/a.json'), 403],
  ['worker', 'lists the bucket', 'GET', '/storage/v1/b/gleaner-local/o', 403],
  ['worker-api', 'stores a shard', 'POST', upload(`${SHARD}2`), 200],
  ['worker-api', 'overwrites a shard', 'POST', upload(SHARD), 403],
  ['worker-api', 'creates a shard again', 'POST', upload(SHARD, '&ifGenerationMatch=0'), 412],
  ['worker-api', 'deletes a shard', 'DELETE', at(SHARD), 403],
  [
    'worker-api',
    'copies a shard to a bundle',
    'POST',
    `${at(SHARD)}/copyTo/b/gleaner-local/o/bundles%2Fx`,
    403,
  ],
  [
    'worker-api',
    'copies a manifest over a shard',
    'POST',
    `${at(MANIFEST)}/rewriteTo/b/gleaner-local/o/${encodeURIComponent(SHARD)}`,
    403,
  ],
  [
    'control',
    'sets a shard aside',
    'POST',
    `${at(SHARD)}/rewriteTo/b/gleaner-local/o/set-aside%2Fx?ifGenerationMatch=0`,
    200,
  ],
  ['worker-api', 'composes a file', 'POST', `${at('checkpoints/a/own/x')}/compose`, 400],
  ['worker-api', 'composes a bundle', 'POST', `${at(BUNDLE)}/compose`, 403],
  ['control', 'moves a manifest', 'POST', `${at(MANIFEST)}/moveTo/o/system%2Fx`, 403],
  ['worker-api', 'sees the bucket', 'GET', '/storage/v1/b/gleaner-local', 200],
  ['control', 'sees the bucket', 'GET', '/storage/v1/b/gleaner-local', 403],
  ['worker-api', 'changes metadata', 'PATCH', at(SHARD), 403],
  ['control', 'replaces a manifest', 'POST', upload(MANIFEST), 200],
  ['control', 'writes a stream', 'POST', upload('datasets/x/stream_000.jsonl'), 403],
  ['worker-api', 'deletes the spec of a run', 'DELETE', at(SPEC), 403],
  ['control', 'deletes the spec of a run', 'DELETE', at(SPEC), 204],
  ['control', 'keeps the stop of a run', 'POST', upload('system/stops/x.json'), 200],
];

describe('a service account on the local cloud', () => {
  const scratch = new Scratch(after);
  let cloud: LocalCloud;
  before(async () => {
    cloud = await scratch.cloud({storage_only: true});
    for (const name of [SHARD, MANIFEST, BUNDLE, SPEC])
      assert.equal((await send(tokenUrl(cloud), 'POST', upload(name), {})).status, 200);
  });

  const ownToken = () => accessTokenOf(cloud.token, ACCOUNTS['worker-api']);

  for (const [who, does, method, path, status] of REQUESTS)
    it(`${status < 300 ? 'is permitted' : 'is refused'}: ${who} ${does}`, async () => {
      const headers = {authorization: `Bearer ${accessTokenOf(cloud.token, ACCOUNTS[who])}`};
      assert.equal((await send(cloud.url, method, path, headers)).status, status);
    });

  const rule = ruleOf({bucket: 'gleaner-local', may: 'get', names: [SHARD]});
  const boundary = {accessBoundaryRules: [rule]};
  const type = 'urn:ietf:params:oauth:token-type:access_token';
  const exchange = async (changes: Record<string, string>, headers: Record<string, string> = {}) => {
    const form = new URLSearchParams({
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      requested_token_type: type,
      subject_token_type: type,
      subject_token: ownToken(),
      options: JSON.stringify({accessBoundary: boundary}),
      ...changes,
    });
    const answer = await fetch(`${cloud.url}/v1/token`, {method: 'POST', body: form, headers});
    return {status: answer.status, body: (await answer.json()) as Record<string, unknown>};
  };
  const withRules = (...rules: unknown[]) => ({
    options: JSON.stringify({accessBoundary: {accessBoundaryRules: rules}}),
  });
  const under = (expression: string) => withRules({...rule, availabilityCondition: {expression}});

  it('exchanges its token for one with a boundary, which ends with the token', async () => {
    const {status, body} = await exchange({});
    assert.deepEqual([status, body.expires_in, body.token_type], [200, 3599, 'Bearer']);
  });

  const badExchanges: {name: string; changes: () => Record<string, string>; error?: string}[] = [
    {name: 'of another grant', changes: () => ({grant_type: 'refresh_token'})},
    {name: 'without a boundary', changes: () => ({options: '{}'})},
    {name: 'without a rule', changes: () => withRules()},
    {name: 'with eleven rules', changes: () => withRules(...Array(11).fill(rule))},
    {name: 'of a resource that is no bucket', changes: () => withRules({...rule, availableResource: '//x'})},
    {
      name: 'of an unknown role',
      changes: () => withRules({...rule, availablePermissions: ['inRole:roles/x']}),
    },
    {name: 'with a condition that is no CEL', changes: () => under('resource.name.startsWith("a')},
    {name: 'with a condition on another attribute', changes: () => under('request.name == "a"')},
    {name: 'of a forged token', changes: () => ({subject_token: `${ownToken()}x`}), error: 'invalid_grant'},
    {
      name: 'of a token that has a boundary',
      changes: () => ({subject_token: narrowed(Date.now() + 1000)}),
      error: 'invalid_grant',
    },
  ];
  for (const {name, changes, error = 'invalid_request'} of badExchanges)
    it(`is refused an exchange ${name}`, async () => {
      const {status, body} = await exchange(changes());
      assert.deepEqual([status, body.error], [400, error]);
    });

  it('is refused an exchange that is no form', async () => {
    const {body} = await exchange({}, {'content-type': 'application/json'});
    assert.equal(body.error, 'invalid_request');
  });

  const narrowed = (expires_at_ms: number) =>
    narrowedTokenOf(cloud.token, {
      email: ACCOUNTS['worker-api'],
      boundary: boundary as unknown as Boundary,
      expires_at_ms,
    });
  const by = (token: string, method: string, path: string) =>
    send(cloud.url, method, path, {authorization: `Bearer ${token}`});

  it('reads by a token with a boundary until the token ends', async () => {
    assert.equal((await by(narrowed(Date.now() + 60_000), 'GET', at(SHARD))).status, 200);
    assert.equal((await by(narrowed(Date.now()), 'GET', at(SHARD))).status, 401);
  });

  it('cannot widen a token with a boundary, or use it for another service', async () => {
    const token = narrowed(Date.now() + 60_000);
    const [kind, facts = '', signature] = token.split('.');
    const wide = JSON.parse(Buffer.from(facts, 'base64url').toString());
    wide.boundary.accessBoundaryRules = [];
    const forged = [kind, Buffer.from(JSON.stringify(wide)).toString('base64url'), signature].join('.');
    assert.equal((await by(forged, 'GET', at(SHARD))).status, 401);
    assert.equal((await by(token, 'GET', at(MANIFEST))).status, 403);
    const topics = await by(token, 'POST', '/v1/projects/gleaner-local/topics/tick:publish');
    assert.equal(topics.status, 403);
  });

  describe('whose token the token service refuses', () => {
    let metadata: HttpServer;
    before(async () => {
      const json = {access_token: 'a-forged-token', expires_in: 3599};
      metadata = await serve(async () => ({json}), {port: 0, trouble: () => {}});
    });
    after(() => metadata.close());

    it('finds no token in the error', async () => {
      const tokens = openObjectTokens({
        metadata_host: `127.0.0.1:${metadata.port}`,
        account: 'default',
        endpoint: cloud.url,
      });
      await assert.rejects(tokens.issue([{bucket: 'b-1', may: 'get', names: ['a']}]), error => {
        assert.match(String(error), /Failed to get a token for a lease: .*invalid_grant/);
        assert.doesNotMatch(inspect(error, {depth: 20, showHidden: true}), /a-forged-token/);
        return true;
      });
    });
  });
});
