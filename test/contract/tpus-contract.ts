/** The contract of the port Tpus, for both providers on the local cloud and for the fake of the other tests. */
import assert from 'node:assert/strict';
import {randomUUID} from 'node:crypto';
import type {TpuError} from '../../shared/contracts/errors.ts';
import type {Tpu, TpuRequest, Tpus} from '../../shared/ports/ports.ts';

const [NAME, ZONE] = ['tpu-us-central1-a-0', 'us-central1-a'];
const LABELS = {'managed-by': 'gleaner', pool: 'tpu'};

export type TpuCloud = {
  client: () => Tpus;
  /** Lists again and again until the list is as wanted. */
  listUntil: (isReached: (tpus: Tpu[]) => boolean) => Promise<Tpu[]>;
  fault: (kind: 'unreachable' | 'stockout' | 'quota' | 'rate', zone: string) => Promise<void>;
  provider?: ProviderWords;
};

/** `request`: what its requests have. `queued`: what those in a queue have. `up`, `health`: words for a node that is up. */
type ProviderWords = {
  request: Partial<TpuRequest>;
  queued: Partial<TpuRequest>;
  up: string;
  health: string;
  names_expiry: boolean;
};

const TPU_API: ProviderWords = {request: {}, queued: {}, up: 'READY', health: 'HEALTHY', names_expiry: true};

export const COMPUTE_ENGINE: ProviderWords = {
  request: {
    ...{provider: 'compute-engine', accelerator: 'v6e-1', disk_gb: 200},
    runtime_version: 'ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e',
  },
  queued: {spot: false},
  ...{up: 'RUNNING', health: 'HEALTH_UNSPECIFIED', names_expiry: false},
};

export function aRequest(changes: Partial<TpuRequest> = {}): TpuRequest {
  return {
    name: NAME,
    zone: ZONE,
    provider: 'tpu-api',
    accelerator: 'v5litepod-1',
    runtime_version: 'v2-alpha-tpuv5-lite',
    disk_gb: null,
    spot: true,
    labels: LABELS,
    metadata: {'startup-script': '#!/bin/bash\nexec sleep 600\n', 'gleaner-worker': NAME},
    queue: null,
    ...changes,
  };
}

/** A request in the queue of a provider. */
function aQueuedRequest({request, queued}: ProviderWords, changes: Partial<TpuRequest> = {}): TpuRequest {
  const valid_until_at = new Date(Date.now() + 3_600_000).toISOString();
  return aRequest({...request, ...queued, queue: {valid_until_at, request_id: randomUUID()}, ...changes});
}

export function itKeepsTheContract(cloud: TpuCloud): void {
  testNodes(cloud);
  testRefusals(cloud);
  testQueue(cloud);
}

function testNodes({client, listUntil, fault, provider = TPU_API}: TpuCloud): void {
  const {request, up, health} = provider;
  const asked = (changes: Partial<TpuRequest> = {}) => aRequest({...request, ...changes});

  it('a created node appears in a later list as requested', async () => {
    assert.deepEqual(await client().list(), {tpus: [], unreachable: []});
    assert.equal(await client().create(asked()), 'started');
    const [node] = await listUntil(([one]) => one?.state === up);
    assert.ok(node);
    const {created_at, ...rest} = node;
    assert.deepEqual(rest, {
      ...{name: NAME, zone: ZONE, labels: LABELS},
      ...{state: up, health, symptoms: [], queued: null},
    });
    assert.equal(new Date(created_at).toISOString(), created_at);
    assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  });

  it('get returns nodes and queued resources as the list shows them', async () => {
    await client().create(asked());
    await client().create(aQueuedRequest(provider, {name: 'tpu-us-central1-a-1'}));
    const listed = await listUntil(found => found.filter(({state}) => state === up).length === 2);
    for (const tpu of listed) assert.deepEqual(await client().get(tpu.name, tpu.zone), tpu);
  });

  it('get returns undefined for a missing node', async () => {
    assert.equal(await client().get(NAME, ZONE), undefined);
  });

  it('get throws in a zone without an answer', async () => {
    await client().create(asked());
    await fault('unreachable', ZONE);
    await assert.rejects(client().get(NAME, ZONE), {name: 'TpuError', kind: 'transient'});
  });

  it('a repeated create answers that the node exists', async () => {
    assert.equal(await client().create(asked()), 'started');
    assert.equal(await client().create(asked()), 'exists');
    assert.equal((await client().list()).tpus.length, 1);
  });

  it('a repeated delete succeeds, during the deletion and after it', async () => {
    await client().create(asked());
    assert.equal(await client().delete(NAME, ZONE), 'started');
    assert.ok(['started', 'absent'].includes(await client().delete(NAME, ZONE)));
    await listUntil(found => found.length === 0);
    assert.equal(await client().delete(NAME, ZONE), 'absent');
  });

  it('a list has the nodes of all zones, and the zones without an answer', async () => {
    await client().create(asked());
    await client().create(asked({name: 'tpu-us-east5-b-0', zone: 'us-east5-b'}));
    const places = (await client().list()).tpus.map(tpu => `${tpu.zone}/${tpu.name}`);
    assert.deepEqual(places.sort(), ['us-central1-a/tpu-us-central1-a-0', 'us-east5-b/tpu-us-east5-b-0']);
    await fault('unreachable', 'us-east5-b');
    const {tpus: left, unreachable} = await client().list();
    assert.deepEqual([left.map(tpu => tpu.name), unreachable], [[NAME], ['us-east5-b']]);
  });
}

function testRefusals({client, fault, provider = TPU_API}: TpuCloud): void {
  const refusals = {stockout: 'no-capacity', quota: 'quota', rate: 'rate'};
  for (const kind of ['stockout', 'quota', 'rate'] as const)
    it(`a create under ${kind} is refused as ${refusals[kind]}`, async () => {
      await fault(kind, ZONE);
      await assert.rejects(client().create(aRequest(provider.request)), {
        ...{name: 'TpuError', kind: refusals[kind], zone: ZONE},
        message: new RegExp(`^Failed to create ${NAME}`),
      });
    });
}

function testQueue({client, listUntil, fault, provider = TPU_API}: TpuCloud): void {
  const {up, names_expiry} = provider;

  it('a queued resource without capacity waits, and is deleted', async () => {
    await fault('stockout', ZONE);
    const sent = aQueuedRequest(provider);
    assert.equal(await client().create(sent), 'started');
    const [waiting] = await listUntil(([one]) => one?.queued?.state === 'WAITING_FOR_RESOURCES');
    assert.deepEqual(
      [waiting?.state, waiting?.health, waiting?.labels],
      [null, 'HEALTH_UNSPECIFIED', LABELS],
    );
    const {valid_until_at, ...rest} = waiting?.queued ?? {};
    assert.deepEqual(rest, {state: 'WAITING_FOR_RESOURCES', initiator: 'USER', error: null, labels: LABELS});
    const late_ms = Date.parse(valid_until_at ?? '') - Date.parse(sent.queue?.valid_until_at ?? '');
    assert.ok(names_expiry ? Math.abs(late_ms) < 1000 : valid_until_at === null, String(valid_until_at));
    assert.equal(await client().delete(NAME, ZONE), 'started');
    await listUntil(found => found.length === 0);
  });

  it('a queued resource and its node are one entry', async () => {
    await client().create(aQueuedRequest(provider));
    const active = await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
    assert.deepEqual([active.length, active[0]?.state, active[0]?.labels], [1, up, LABELS]);
    assert.equal(await client().delete(NAME, ZONE), 'started');
    await listUntil(found => found.length === 0);
  });

  it('a request in the queue that meets quota is refused as quota, at once or in the list', async () => {
    await fault('quota', ZONE);
    const refused = await client()
      .create(aQueuedRequest(provider))
      .then(
        () => undefined,
        (error: TpuError) => error,
      );
    if (refused) return assert.deepEqual([refused.name, refused.kind], ['TpuError', 'quota']);
    const [failed] = await listUntil(([one]) => one?.queued?.state === 'FAILED');
    assert.deepEqual([failed?.state, failed?.queued?.error?.kind], [null, 'quota']);
    assert.ok(failed?.queued?.error?.message);
  });
}
