/** The contract of the port Tpus, for both providers on the local cloud and for the fake of the other tests. */
import assert from 'node:assert/strict';
import {randomUUID} from 'node:crypto';
import type {TpuError} from '../../shared/contracts/errors.ts';
import type {Tpu, TpuRequest, Tpus} from '../../shared/ports/ports.ts';

export type TpuCloud = {
  client: () => Tpus;
  /** Lists again and again until the list is as wanted. */
  listUntil: (isReached: (tpus: Tpu[]) => boolean) => Promise<Tpu[]>;
  fault: (kind: 'unreachable' | 'stockout' | 'quota', zone: string) => Promise<void>;
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
    name: 'tpu-us-central1-a-0',
    zone: 'us-central1-a',
    provider: 'tpu-api',
    accelerator: 'v5litepod-1',
    runtime_version: 'v2-alpha-tpuv5-lite',
    disk_gb: null,
    spot: true,
    labels: {'managed-by': 'gleaner', pool: 'tpu'},
    metadata: {'startup-script': '#!/bin/bash\nexec sleep 600\n', 'gleaner-worker': 'tpu-us-central1-a-0'},
    queue: null,
    ...changes,
  };
}

export function itKeepsTheContract({client, listUntil, fault, provider = TPU_API}: TpuCloud): void {
  const [name, zone] = ['tpu-us-central1-a-0', 'us-central1-a'];
  const labels = {'managed-by': 'gleaner', pool: 'tpu'};
  const {request, queued, up, health, names_expiry} = provider;
  const asked = (changes: Partial<TpuRequest> = {}) => aRequest({...request, ...changes});
  const inQueue = (changes: Partial<TpuRequest> = {}) => asked({...queued, queue: queue(), ...changes});
  const queue = () => ({
    valid_until_at: new Date(Date.now() + 3_600_000).toISOString(),
    request_id: randomUUID(),
  });
  let tpus: Tpus;
  beforeEach(() => {
    tpus = client();
  });

  it('a created node appears in a later list as requested', async () => {
    assert.deepEqual(await tpus.list(), {tpus: [], unreachable: []});
    assert.equal(await tpus.create(asked()), 'started');
    const [node] = await listUntil(([one]) => one?.state === up);
    assert.ok(node);
    const {created_at, ...rest} = node;
    assert.deepEqual(rest, {
      name,
      zone,
      state: up,
      health,
      labels,
      symptoms: [],
      queued: null,
    });
    assert.equal(new Date(created_at).toISOString(), created_at);
    assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  });

  it('get returns nodes and queued resources as the list shows them', async () => {
    await tpus.create(asked());
    await tpus.create(inQueue({name: 'tpu-us-central1-a-1'}));
    const listed = await listUntil(found => found.filter(({state}) => state === up).length === 2);
    for (const tpu of listed) assert.deepEqual(await tpus.get(tpu.name, tpu.zone), tpu);
  });

  it('get returns undefined for a missing node', async () => {
    assert.equal(await tpus.get(name, zone), undefined);
  });

  it('get throws in a zone without an answer', async () => {
    await tpus.create(asked());
    await fault('unreachable', zone);
    await assert.rejects(tpus.get(name, zone), {name: 'TpuError', kind: 'transient'});
  });

  it('a repeated create answers that the node exists', async () => {
    assert.equal(await tpus.create(asked()), 'started');
    assert.equal(await tpus.create(asked()), 'exists');
    assert.equal((await tpus.list()).tpus.length, 1);
  });

  it('a repeated delete succeeds, during the deletion and after it', async () => {
    await tpus.create(asked());
    assert.equal(await tpus.delete(name, zone), 'started');
    assert.ok(['started', 'absent'].includes(await tpus.delete(name, zone)));
    await listUntil(found => found.length === 0);
    assert.equal(await tpus.delete(name, zone), 'absent');
  });

  it('a list has the nodes of all zones, and the zones without an answer', async () => {
    await tpus.create(asked());
    await tpus.create(asked({name: 'tpu-us-east5-b-0', zone: 'us-east5-b'}));
    const places = (await tpus.list()).tpus.map(tpu => `${tpu.zone}/${tpu.name}`);
    assert.deepEqual(places.sort(), ['us-central1-a/tpu-us-central1-a-0', 'us-east5-b/tpu-us-east5-b-0']);
    await fault('unreachable', 'us-east5-b');
    const {tpus: left, unreachable} = await tpus.list();
    assert.deepEqual([left.map(tpu => tpu.name), unreachable], [[name], ['us-east5-b']]);
  });

  for (const [kind, refusal] of [
    ['stockout', 'no-capacity'],
    ['quota', 'quota'],
  ] as const)
    it(`a create under ${kind} is refused as ${refusal}`, async () => {
      await fault(kind, zone);
      await assert.rejects(tpus.create(asked()), {
        ...{name: 'TpuError', kind: refusal, zone},
        message: new RegExp(`^Failed to create ${name}`),
      });
    });

  it('a queued resource without capacity waits, and is deleted', async () => {
    await fault('stockout', zone);
    const sent = inQueue();
    assert.equal(await tpus.create(sent), 'started');
    const [waiting] = await listUntil(([one]) => one?.queued?.state === 'WAITING_FOR_RESOURCES');
    assert.deepEqual(
      [waiting?.state, waiting?.health, waiting?.labels],
      [null, 'HEALTH_UNSPECIFIED', labels],
    );
    const {valid_until_at, ...rest} = waiting?.queued ?? {};
    assert.deepEqual(rest, {state: 'WAITING_FOR_RESOURCES', initiator: 'USER', error: null, labels});
    const late_ms = Date.parse(valid_until_at ?? '') - Date.parse(sent.queue?.valid_until_at ?? '');
    assert.ok(names_expiry ? Math.abs(late_ms) < 1000 : valid_until_at === null, String(valid_until_at));
    assert.equal(await tpus.delete(name, zone), 'started');
    await listUntil(found => found.length === 0);
  });

  it('a queued resource and its node are one entry', async () => {
    await tpus.create(inQueue());
    const active = await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
    assert.deepEqual([active.length, active[0]?.state, active[0]?.labels], [1, up, labels]);
    assert.equal(await tpus.delete(name, zone), 'started');
    await listUntil(found => found.length === 0);
  });

  it('a request in the queue that meets quota is refused as quota, at once or in the list', async () => {
    await fault('quota', zone);
    const refused = await tpus.create(inQueue()).then(
      () => undefined,
      (error: TpuError) => error,
    );
    if (refused) return assert.deepEqual([refused.name, refused.kind], ['TpuError', 'quota']);
    const [failed] = await listUntil(([one]) => one?.queued?.state === 'FAILED');
    assert.deepEqual([failed?.state, failed?.queued?.error?.kind], [null, 'quota']);
    assert.ok(failed?.queued?.error?.message);
  });
}
