/** A local cloud with the real functions and two workers: a victim at work, and a forger with a token and a secret of its own. */
import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {DatabaseSync} from 'node:sqlite';
import {fileURLToPath} from 'node:url';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {accountsOf, Identities} from '../../emulator/http/identity.ts';
import {loadConfig} from '../../shared/contracts/settings/config.ts';
import {runRecords, streamRecords, workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {ticketOf} from '../../shared/control-plane/workers/tickets.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {iso} from '../../shared/domain/time.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {Scratch, tokenUrl} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {aRun, aStream, aWorker, ENVIRONMENT} from '../world/builders.ts';
import {secretOf} from '../world/bus.ts';

const TRIGGERS = fileURLToPath(new URL('../../functions/triggers.json', import.meta.url));

export const LEASE = {run: 'my-run', stream: '007', epoch: 3};
export const from = (worker: string, incarnation: number, host = 0) => ({worker, incarnation, host});

const ago = (seconds: number) => iso(Date.now() - seconds * 1000);

export const VICTIM = aWorker({
  name: 'tpu-us-central1-a-0',
  phase: 'working',
  born_at: ago(600),
  ready_at: ago(500),
  heartbeat_at: ago(10),
  work: 'my-run/007',
  epoch: LEASE.epoch,
  claimed_at: ago(10),
  usd_per_hour: 1,
});
const IDLE = {phase: 'idle', work: null, epoch: null, claimed_at: null, host_secrets: {}} as const;
export const FORGER: Worker = {...VICTIM, name: 'tpu-us-central1-a-1', slot: 1, ...IDLE};
export const SECRETS = {victim: secretOf(VICTIM.name, 2), forger: secretOf(FORGER.name, 2)};

export type Proof = {secret?: string; authorization?: string; headers?: Record<string, string>};

export class TwoWorkers {
  readonly scratch = new Scratch();
  cloud!: LocalCloud;
  identities!: Identities;
  url = '';
  #token = '';

  async start(): Promise<void> {
    const {GLEANER_BUNDLE} = ENVIRONMENT;
    this.cloud = await this.scratch.cloud({triggers: TRIGGERS, function_host: {env: {GLEANER_BUNDLE}}});
    this.identities = new Identities(this.cloud.dir);
    this.url = `${this.cloud.url}/functions/worker-api`;
    this.#token = await this.#tokenOfAVm();
  }

  /** Writes the documents of both workers. The forger says hello, as every worker does. */
  async reset(): Promise<void> {
    const lease = {worker: VICTIM.name, incarnation: 2, epoch: LEASE.epoch};
    await this.write(async tx => {
      runRecords.set(tx, aRun({streams_in_progress: 1}));
      streamRecords.set(tx, aStream({status: 'in_progress', epoch: LEASE.epoch, lease}));
      workerRecords.set(tx, VICTIM);
      workerRecords.set(tx, FORGER);
    });
    const hello = {action: 'hello', ...from(FORGER.name, 2), ticket: this.ticketFor(FORGER)};
    assert.equal((await this.ask(hello, {secret: SECRETS.forger})).status, 200);
  }

  /** The ticket of a worker; of another deployment with the same key if `deployment` is given. */
  ticketFor(worker: Worker, deployment?: string): string {
    const {identity} = loadConfig({...ENVIRONMENT, GLEANER_TICKET_KEY: this.identities.ticket_key});
    return ticketOf({...identity, ...(deployment && {deployment})}, 'the test', worker);
  }

  async write(work: Parameters<ReturnType<typeof openSqliteStore>['transaction']>[0]): Promise<void> {
    const store = openSqliteStore(this.cloud.store_file);
    await store.transaction(work);
    await store.close();
  }

  /** Every document of the store. A write of the same content counts too: it changes the version. */
  documents(): unknown[] {
    const database = new DatabaseSync(this.cloud.store_file, {readOnly: true});
    const rows = database.prepare('SELECT * FROM documents ORDER BY collection, id').all();
    database.close();
    return rows;
  }

  /** Asks worker-api at its local address, with the token of a VM of the workers unless the proof says otherwise. */
  async ask(body: object, {secret, authorization = `Bearer ${this.#token}`, headers = {}}: Proof = {}) {
    const own = {'content-type': 'application/json', authorization};
    const response = await fetch(this.url, {
      method: 'POST',
      headers: {...own, ...(secret === undefined ? {} : {'x-gleaner-secret': secret}), ...headers},
      body: JSON.stringify(body),
    });
    return {status: response.status, text: await response.text()};
  }

  /** A token of the metadata server of a VM with the workers' account. */
  async #tokenOfAVm(): Promise<string> {
    const body = {
      acceleratorType: 'v5litepod-1',
      runtimeVersion: 'v2-alpha-tpuv5-lite',
      metadata: {'startup-script': '#!/bin/sh\necho "server $GCE_METADATA_HOST"; sleep 1000'},
      serviceAccount: {email: accountsOf(this.cloud.project, 'gleaner').worker},
    };
    const nodes = '/v2/projects/gleaner-local/locations/us-central1-a/nodes?nodeId=vm';
    const answer = await fetch(`${tokenUrl(this.cloud)}${nodes}`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200);
    const log = join(this.cloud.dir, 'logs', 'vm-1.log');
    const host = await until('the VM printed the address of its metadata server', () =>
      existsSync(log) ? /server (\S+)/.exec(readFileSync(log, 'utf8'))?.[1] : undefined,
    );
    const query = new URLSearchParams({audience: this.url, format: 'full'});
    const path = `computeMetadata/v1/instance/service-accounts/default/identity?${query}`;
    return (await fetch(`http://${host}/${path}`, {headers: {'metadata-flavor': 'Google'}})).text();
  }
}
