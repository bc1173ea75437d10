import assert from 'node:assert/strict';
import {setTimeout as sleep} from 'node:timers/promises';
import {composeDeps} from '../../shared/compose.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {Tpu, TpuRequest, Tpus} from '../../shared/ports.ts';
import {aConfig} from '../builders.ts';
import {useLocalCloud} from './local-cloud.ts';

function aRequest(changes: Partial<TpuRequest> = {}): TpuRequest {
  return {
    name: 'tpu-us-central1-a-0',
    zone: 'us-central1-a',
    accelerator: 'v5litepod-1',
    runtime_version: 'v2-alpha-tpuv5-lite',
    spot: true,
    labels: {gleaner: 'yes', pool: 'tpu'},
    metadata: {'startup-script': '#!/bin/bash\nexec sleep 600\n', 'gleaner-worker': 'tpu-us-central1-a-0'},
    ...changes,
  };
}

describe('Tpus: Cloud TPU', () => {
  const cloud = useLocalCloud();
  let tpus: Tpus;

  beforeEach(() => {
    const {project, url} = cloud();
    tpus = openTpus({project, endpoint: url});
  });

  afterEach(async () => {
    await cloud().fault('clear', 'all');
    for (const {name, zone} of (await tpus.list()).tpus) await tpus.delete(name, zone);
    await listUntil(found => found.length === 0);
  });

  async function listUntil(isReached: (tpus: Tpu[]) => boolean): Promise<Tpu[]> {
    for (;;) {
      const {tpus: found} = await tpus.list();
      if (isReached(found)) return found;
      await sleep(20);
    }
  }

  it('start a node that a later list shows as it was asked for', async () => {
    assert.deepEqual(await tpus.list(), {tpus: [], unreachable: []});
    assert.equal(await tpus.create(aRequest()), 'started');
    const [node] = await listUntil(([one]) => one?.state === 'READY');
    assert.ok(node);
    const {created_at, ...rest} = node;
    assert.deepEqual(rest, {
      name: 'tpu-us-central1-a-0',
      zone: 'us-central1-a',
      state: 'READY',
      health: 'HEALTHY',
      labels: {gleaner: 'yes', pool: 'tpu'},
    });
    assert.equal(new Date(created_at).toISOString(), created_at);
    assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  });

  it('are asked for with all that the request says', async () => {
    const {project, url} = cloud();
    const service_account = 'worker@p.iam.gserviceaccount.com';
    await openTpus({project, endpoint: url, service_account}).create(aRequest());
    await tpus.create(aRequest({name: 'tpu-us-central1-a-1', spot: false}));
    const nodes = `${url}/v2/projects/${project}/locations/us-central1-a/nodes`;
    const spot = (await (await fetch(`${nodes}/tpu-us-central1-a-0`)).json()) as Record<string, unknown>;
    assert.equal(spot.acceleratorType, 'v5litepod-1');
    assert.equal(spot.runtimeVersion, 'v2-alpha-tpuv5-lite');
    assert.deepEqual(spot.metadata, aRequest().metadata);
    assert.deepEqual(spot.schedulingConfig, {spot: true});
    assert.equal((spot.networkConfig as Record<string, unknown>).enableExternalIps, true);
    assert.equal((spot.serviceAccount as Record<string, unknown>).email, service_account);
    const onDemand = (await (await fetch(`${nodes}/tpu-us-central1-a-1`)).json()) as Record<string, unknown>;
    assert.notDeepEqual(onDemand.schedulingConfig, {spot: true});
  });

  it('are who the configuration says the workers are', async () => {
    const {project, url} = cloud();
    const account = 'worker@p.iam.gserviceaccount.com';
    const nodes = `${url}/v2/projects/${project}/locations/us-central1-a/nodes`;
    const set = {GLEANER_PROJECT: project, GLEANER_TPU_ENDPOINT: url};
    const names = {
      'tpu-us-central1-a-0': {GLEANER_WORKER_SERVICE_ACCOUNT: account},
      'tpu-us-central1-a-1': {},
    };
    const accounts: unknown[] = [];
    for (const [name, who] of Object.entries(names)) {
      await composeDeps(aConfig({...set, ...who})).tpus.create(aRequest({name}));
      const node = (await (await fetch(`${nodes}/${name}`)).json()) as {serviceAccount?: {email?: string}};
      accounts.push(node.serviceAccount?.email);
    }
    assert.equal(accounts[0], account);
    assert.notEqual(accounts[1], account);
  });

  it('may be made again while they exist', async () => {
    assert.equal(await tpus.create(aRequest()), 'started');
    assert.equal(await tpus.create(aRequest()), 'exists');
    assert.equal((await tpus.list()).tpus.length, 1);
  });

  it('may be deleted again, also while they go', async () => {
    await tpus.create(aRequest());
    assert.equal(await tpus.delete('tpu-us-central1-a-0', 'us-central1-a'), 'started');
    const again = await tpus.delete('tpu-us-central1-a-0', 'us-central1-a');
    assert.ok(['started', 'absent'].includes(again));
    await listUntil(found => found.length === 0);
    assert.equal(await tpus.delete('tpu-us-central1-a-0', 'us-central1-a'), 'absent');
  });

  it('of all zones come in one list, with the zones that gave no answer', async () => {
    await tpus.create(aRequest());
    await tpus.create(aRequest({name: 'tpu-us-east5-b-0', zone: 'us-east5-b'}));
    const places = (await tpus.list()).tpus.map(({name, zone}) => `${zone}/${name}`);
    assert.deepEqual(places.sort(), ['us-central1-a/tpu-us-central1-a-0', 'us-east5-b/tpu-us-east5-b-0']);
    await cloud().fault('unreachable', 'us-east5-b');
    const {tpus: left, unreachable} = await tpus.list();
    assert.deepEqual(
      left.map(({name}) => name),
      ['tpu-us-central1-a-0'],
    );
    assert.deepEqual(unreachable, ['us-east5-b']);
  });

  it('that were preempted stay in the list and say so', async () => {
    await tpus.create(aRequest());
    await listUntil(([one]) => one?.state === 'READY');
    await cloud().fault('preempt', 'tpu-us-central1-a-0');
    await listUntil(([one]) => one?.state === 'PREEMPTED');
  });

  const REFUSED: {name: string; fault?: string; changes?: Partial<TpuRequest>; kind: string}[] = [
    {name: 'there is no capacity, which only the operation says', fault: 'stockout', kind: 'no-capacity'},
    {name: 'the quota is used up', fault: 'quota', kind: 'quota'},
    {name: 'the type does not exist', changes: {accelerator: 'v99-1'}, kind: 'bad-request'},
    {name: 'the zone is not for us', changes: {zone: 'moon-east1-a'}, kind: 'permission'},
  ];

  for (const {name, fault, changes = {}, kind} of REFUSED)
    it(`are refused as ${kind} when ${name}`, async () => {
      const request = aRequest(changes);
      if (fault) await cloud().fault(fault, request.zone);
      await assert.rejects(tpus.create(request), {
        name: 'TpuError',
        kind,
        zone: request.zone,
        message: new RegExp(`^Failed to create ${request.name} in ${request.zone}: `),
      });
    });

  it('of a cloud that does not answer are a transient failure', async () => {
    const gone = openTpus({project: 'p', endpoint: 'http://127.0.0.1:9'});
    await assert.rejects(gone.list(), {name: 'TpuError', kind: 'transient', message: /ECONNREFUSED/});
    await assert.rejects(gone.create(aRequest()), {name: 'TpuError', kind: 'transient'});
    await assert.rejects(gone.delete('tpu-us-central1-a-0', 'us-central1-a'), {kind: 'transient'});
  });
});
