import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {fileURLToPath} from 'node:url';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {accountsOf, Identities} from '../../emulator/identity.ts';
import {loadConfig} from '../../shared/contracts/config.ts';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/state/documents.ts';
import {secretHash} from '../../shared/control-plane/state/worker-answers.ts';
import {ticketOf} from '../../shared/control-plane/workers/tickets.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {aRun, aStream, aWorker, ENVIRONMENT} from '../support/builders.ts';
import {secretOf} from '../support/function-calls.ts';
import {claimsOf, WRONG_CLAIMS, WRONG_SIGNATURES} from '../support/tokens.ts';
import {Scratch, until, writeUrl} from './a-cloud.ts';

const TRIGGERS = fileURLToPath(new URL('../../functions/triggers.json', import.meta.url));
const VICTIM = 'tpu-us-central1-a-0';
const FORGER = 'tpu-us-central1-a-1';
const LEASE = {run: 'my-run', stream: '007', epoch: 3};
const from = (worker: string, incarnation: number, host = 0) => ({worker, incarnation, host});

describe('worker-api at its local address', () => {
  const scratch = new Scratch();
  let cloud: LocalCloud;
  let identities: Identities;
  let url: string;
  let token: string;
  let ticketFor: (worker: Worker) => string;
  const victim = aWorker({
    name: VICTIM,
    phase: 'working',
    born_at: iso(Date.now() - 600_000),
    ready_at: iso(Date.now() - 500_000),
    heartbeat_at: iso(Date.now() - 10_000),
    work: 'my-run/007',
    epoch: LEASE.epoch,
    claimed_at: iso(Date.now() - 10_000),
    usd_per_hour: 1,
  });
  const forger = aWorker({
    ...victim,
    name: FORGER,
    slot: 1,
    phase: 'idle',
    work: null,
    epoch: null,
    claimed_at: null,
  });

  before(async function () {
    this.timeout(60_000);
    const {GLEANER_BUNDLE} = ENVIRONMENT;
    cloud = await scratch.cloud({triggers: TRIGGERS, function_host: {env: {GLEANER_BUNDLE}}});
    identities = new Identities(cloud.dir);
    url = `${cloud.url}/functions/worker-api`;
    const {identity} = loadConfig({...ENVIRONMENT, GLEANER_TICKET_KEY: identities.ticket_key});
    ticketFor = worker => ticketOf(identity, 'the test', worker);
    token = await tokenOfAVm();
  });

  beforeEach(async () => {
    const lease = {worker: VICTIM, incarnation: 2, epoch: LEASE.epoch};
    await written(async tx => {
      runRecords.set(tx, aRun({streams_in_progress: 1}));
      streamRecords.set(tx, aStream({status: 'in_progress', epoch: LEASE.epoch, lease}));
      workerRecords.set(tx, victim);
      workerRecords.set(tx, {...forger, host_secrets: {}});
    });
    // The forger is a worker like any other: it has a token, a ticket and a secret of its own.
    const hello = {action: 'hello', ...from(FORGER, 2), ticket: ticketFor(forger)};
    assert.equal((await ask(hello, {secret: secretOf(FORGER, 2)})).status, 200);
  });

  after(() => scratch.end());

  async function written(
    work: Parameters<ReturnType<typeof openSqliteStore>['transaction']>[0],
  ): Promise<void> {
    const store = openSqliteStore(cloud.store_file);
    await store.transaction(work);
    await store.close();
  }

  /** A token of the metadata server of a VM with the workers' account. */
  async function tokenOfAVm(): Promise<string> {
    const body = {
      acceleratorType: 'v5litepod-1',
      runtimeVersion: 'v2-alpha-tpuv5-lite',
      metadata: {'startup-script': '#!/bin/sh\necho "server $GCE_METADATA_HOST"; sleep 1000'},
      serviceAccount: {email: accountsOf(cloud.project, 'gleaner').worker},
    };
    const nodes = '/v2/projects/gleaner-local/locations/us-central1-a/nodes?nodeId=vm';
    const answer = await fetch(`${writeUrl(cloud)}${nodes}`, {method: 'POST', body: JSON.stringify(body)});
    assert.equal(answer.status, 200);
    const log = join(cloud.dir, 'logs', 'vm-1.log');
    const host = await until('the VM printed the address of its metadata server', () =>
      existsSync(log) ? /server (\S+)/.exec(readFileSync(log, 'utf8'))?.[1] : undefined,
    );
    const query = new URLSearchParams({audience: url, format: 'full'});
    const path = `computeMetadata/v1/instance/service-accounts/default/identity?${query}`;
    return (await fetch(`http://${host}/${path}`, {headers: {'metadata-flavor': 'Google'}})).text();
  }

  type Proof = {secret?: string; authorization?: string; headers?: Record<string, string>};

  async function ask(
    body: object | string,
    {secret, authorization = `Bearer ${token}`, headers = {}}: Proof = {},
  ) {
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization,
        ...(secret === undefined ? {} : {'x-gleaner-secret': secret}),
        ...headers,
      },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
    return {status: response.status, text: await response.text()};
  }

  /** Every document of the store. */
  function documents(): unknown[] {
    const database = new DatabaseSync(cloud.store_file, {readOnly: true});
    const rows = database.prepare('SELECT * FROM documents ORDER BY 1, 2').all();
    database.close();
    return rows;
  }

  /** The body in the name of the victim, and the proofs that the forger has. */
  const requests = [
    {name: 'a lease', body: {action: 'lease'}},
    {name: 'a heartbeat', body: {action: 'heartbeat', phase: 'running', lease: LEASE, progress: null}},
    {
      name: 'a heartbeat of a restart',
      body: {action: 'heartbeat', phase: 'setup', lease: null, progress: null},
    },
    {name: 'a release', body: {action: 'release', lease: LEASE, outcome: 'drained', failure: null}},
    {
      name: 'a release for a failure of the stream',
      body: {action: 'release', lease: LEASE, outcome: 'failed', failure: {kind: 'stream', reason: 'x'}},
    },
    {
      name: 'a release for a failure of the machine',
      body: {
        action: 'release',
        lease: LEASE,
        outcome: 'failed',
        failure: {kind: 'infrastructure', reason: 'x'},
      },
    },
    {name: 'a hello with the ticket of the forger', body: {action: 'hello'}},
  ];
  const names = [
    {name: 'of another worker', sender: from(VICTIM, 2)},
    {name: 'of another host of another worker', sender: from(VICTIM, 2, 1)},
    {name: 'of another host of the forger itself', sender: from(FORGER, 2, 1), isOwn: true},
  ];
  for (const {name, body} of requests)
    for (const {name: whose, sender, isOwn} of names) {
      // Its ticket permits the forger to bind its own hosts.
      if (isOwn && body.action === 'hello') continue;
      it(`refuses ${name} in the name ${whose}, and changes no document`, async () => {
        const before = documents();
        const ticket = body.action === 'hello' ? {ticket: ticketFor(forger)} : {};
        const asked = {...body, ...sender, ...ticket};
        for (const secret of [secretOf(FORGER, 2), undefined, '', secretHash(secretOf(VICTIM, 2))]) {
          const {status, text} = await ask(asked, secret === undefined ? {} : {secret});
          assert.equal(status, 403, text);
        }
        assert.deepEqual(documents(), before);
        assert.ok(
          scratch.log.some(line => line.includes('"severity":"ERROR"') && line.includes('Refused to')),
        );
      });
    }

  for (const incarnation of [1, 3])
    it(`changes no document for a request of incarnation ${incarnation} of a worker in its second`, async () => {
      const before = documents();
      for (const {body} of requests) {
        const asked = {...body, ...from(VICTIM, incarnation), ticket: ticketFor(forger)};
        const {status, text} = await ask(asked, {secret: secretOf(FORGER, 2)});
        assert.ok([200, 409].includes(status), `${status} ${text}`);
        assert.doesNotMatch(text, /"work"/);
      }
      assert.deepEqual(documents(), before);
    });

  it('changes no document for a worker that no document knows', async () => {
    const before = documents();
    for (const {body} of requests) {
      const asked = {...body, ...from('tpu-us-central1-a-7', 1), ticket: ticketFor(forger)};
      const {status, text} = await ask(asked, {secret: secretOf(FORGER, 2)});
      assert.ok([200, 409].includes(status), `${status} ${text}`);
      assert.doesNotMatch(text, /"work"/);
    }
    assert.deepEqual(documents(), before);
  });

  it('refuses a second secret for a host also with the right ticket, and records that as one event', async () => {
    const before = documents();
    const hello = {action: 'hello', ...from(VICTIM, 2), ticket: ticketFor(victim)};
    for (let claim = 0; claim < 3; claim++)
      assert.equal((await ask(hello, {secret: secretOf(FORGER, 2)})).status, 403);
    const added = documents().filter(row => !JSON.stringify(before).includes(JSON.stringify(row)));
    assert.equal(added.length, 1);
    assert.match(JSON.stringify(added), /Refused to bind a second secret to host 0 of tpu-us-central1-a-0/);
    assert.equal((await ask(hello, {secret: secretOf(VICTIM, 2)})).status, 200, 'the host itself is welcome');
  });

  it('does what the victim itself asks for', async () => {
    const before = documents();
    const beat = {action: 'heartbeat', ...from(VICTIM, 2), phase: 'running', lease: LEASE, progress: null};
    const {status, text} = await ask(beat, {secret: secretOf(VICTIM, 2)});
    assert.deepEqual([status, JSON.parse(text).action], [200, 'continue'], text);
    assert.notDeepEqual(documents(), before);
  });

  it('binds a host with the ticket of its incarnation alone', async () => {
    await written(async tx => workerRecords.set(tx, {...victim, host_secrets: {}}));
    const secret = secretOf(VICTIM, 2);
    const hello = {action: 'hello', ...from(VICTIM, 2)};
    const others = [
      {...victim, incarnation: 1},
      {...victim, incarnation: 3},
      {...victim, born_at: iso(Date.now())},
      forger,
    ];
    for (const other of others)
      assert.equal((await ask({...hello, ticket: ticketFor(other)}, {secret})).status, 403);
    assert.equal((await ask({...hello, ticket: ticketFor(victim)}, {secret})).status, 200);
  });

  const beat = {action: 'heartbeat', ...from(VICTIM, 2), phase: 'running', lease: null, progress: null};
  for (const {name, status, token: forged} of [...WRONG_CLAIMS, ...WRONG_SIGNATURES])
    it(`refuses a token ${name}, in front of the function and in it`, async () => {
      const before = documents();
      const claims = claimsOf(accountsOf(cloud.project, 'gleaner').worker, url);
      const authorization = `Bearer ${forged(claims, given => identities.sign(given))}`;
      const secret = secretOf(VICTIM, 2);
      assert.equal((await ask(beat, {secret, authorization})).status, status);
      // With its key the owner of the cloud passes IAM.
      const headers = {'x-goog-api-key': cloud.token};
      assert.equal((await ask(beat, {secret, authorization, headers})).status, status);
      assert.deepEqual(documents(), before);
    });

  it('refuses a request without a token, and a token that hides behind another', async () => {
    const secret = secretOf(VICTIM, 2);
    assert.equal((await ask(beat, {secret, authorization: ''})).status, 401);
    const headers = {'x-serverless-authorization': `Bearer ${token}`};
    assert.equal((await ask(beat, {secret, headers})).status, 401);
  });

  it('lets on-tick ping and do nothing else, and lets no worker ping', async () => {
    const authorization = `Bearer ${identities.sign(claimsOf(accountsOf(cloud.project, 'gleaner').control, url))}`;
    const secret = secretOf(VICTIM, 2);
    assert.equal((await ask({action: 'ping'}, {authorization})).status, 200);
    assert.equal((await ask(beat, {authorization, secret})).status, 403);
    assert.equal((await ask({action: 'ping'}, {secret})).status, 403);
  });

  it('refuses what is not JSON, and more than 256 KiB', async () => {
    const secret = secretOf(VICTIM, 2);
    const text = {'content-type': 'text/plain'};
    assert.equal((await ask(JSON.stringify(beat), {secret, headers: text})).status, 415);
    assert.equal((await ask({...beat, more: 'x'.repeat(256 * 1024)}, {secret})).status, 413);
  });
});
