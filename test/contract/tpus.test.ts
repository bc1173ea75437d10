import assert from 'node:assert/strict';
import {composeDeps} from '../../shared/compose.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {TpuRequest, Tpus} from '../../shared/ports.ts';
import {aConfig} from '../support/builders.ts';
import {aRequest, useTpus} from './tpu-cases.ts';

describe('Tpus: nodes of Cloud TPU', () => {
  const {cloud, client, listUntil} = useTpus();
  let tpus: Tpus;
  beforeEach(() => {
    tpus = client();
  });

  it('a created node appears in a later list as requested', async () => {
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
      symptoms: [],
      queued: null,
    });
    assert.equal(new Date(created_at).toISOString(), created_at);
    assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  });

  it('get returns nodes and queued resources as the list shows them', async () => {
    await tpus.create(aRequest());
    const queue = {
      valid_until_at: new Date(Date.now() + 3_600_000).toISOString(),
      request_id: '5f5d5f4c-30fe-4f0a-9c5e-6a2b7c8d9e0f',
    };
    await tpus.create(aRequest({name: 'tpu-us-central1-a-1', queue}));
    const listed = await listUntil(found => found.filter(({state}) => state === 'READY').length === 2);
    for (const tpu of listed) assert.deepEqual(await tpus.get(tpu.name, tpu.zone), tpu);
  });

  it('get returns undefined for a missing node', async () => {
    assert.equal(await tpus.get('tpu-us-central1-a-0', 'us-central1-a'), undefined);
  });

  it('get throws in a zone without an answer', async () => {
    await tpus.create(aRequest());
    await cloud().fault('unreachable', 'us-central1-a');
    await assert.rejects(tpus.get('tpu-us-central1-a-0', 'us-central1-a'), {
      name: 'TpuError',
      kind: 'transient',
    });
  });

  it('a node has every property of its request', async () => {
    const {project, url, token} = cloud();
    const service_account = 'worker@p.iam.gserviceaccount.com';
    await openTpus({project, endpoint: url, token, service_account}).create(aRequest());
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

  it('a node has the service account of the configuration', async () => {
    const {project, url, token} = cloud();
    const account = 'worker@p.iam.gserviceaccount.com';
    const nodes = `${url}/v2/projects/${project}/locations/us-central1-a/nodes`;
    const set = {GLEANER_PROJECT: project, GLEANER_TPU_ENDPOINT: url, GLEANER_LOCAL_TOKEN: token};
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

  it('a repeated create answers that the node exists', async () => {
    assert.equal(await tpus.create(aRequest()), 'started');
    assert.equal(await tpus.create(aRequest()), 'exists');
    assert.equal((await tpus.list()).tpus.length, 1);
  });

  it('a repeated delete succeeds, during the deletion and after it', async () => {
    await tpus.create(aRequest());
    assert.equal(await tpus.delete('tpu-us-central1-a-0', 'us-central1-a'), 'started');
    const again = await tpus.delete('tpu-us-central1-a-0', 'us-central1-a');
    assert.ok(['started', 'absent'].includes(again));
    await listUntil(found => found.length === 0);
    assert.equal(await tpus.delete('tpu-us-central1-a-0', 'us-central1-a'), 'absent');
  });

  it('a list has the nodes of all zones, and the zones without an answer', async () => {
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

  it('a preempted node stays in the list as PREEMPTED', async () => {
    await tpus.create(aRequest());
    await listUntil(([one]) => one?.state === 'READY');
    await cloud().fault('preempt', 'tpu-us-central1-a-0');
    await listUntil(([one]) => one?.state === 'PREEMPTED');
  });

  it('a node with an endless create stays CREATING, and can be deleted', async () => {
    await cloud().fault('endless-create', 'us-central1-a');
    assert.equal(await tpus.create(aRequest()), 'started');
    assert.equal((await tpus.list()).tpus[0]?.state, 'CREATING');
    assert.equal(await tpus.delete('tpu-us-central1-a-0', 'us-central1-a'), 'started');
    await listUntil(found => found.length === 0);
  });

  it('a node with a late failure is started, and later missing', async () => {
    await cloud().fault('late-failure', 'us-central1-a=3');
    assert.equal(await tpus.create(aRequest()), 'started');
    assert.equal((await tpus.list()).tpus[0]?.state, 'CREATING');
    await listUntil(found => found.length === 0);
  });

  const REFUSED: {name: string; fault?: string; changes?: Partial<TpuRequest>; kind: string}[] = [
    {name: 'a stock-out in the operation', fault: 'stockout', kind: 'no-capacity'},
    {name: 'an exhausted quota', fault: 'quota', kind: 'quota'},
    {name: 'an unknown type', changes: {accelerator: 'v99-1'}, kind: 'bad-request'},
    {name: 'a zone without permission', changes: {zone: 'moon-east1-a'}, kind: 'permission'},
  ];

  for (const {name, fault, changes = {}, kind} of REFUSED)
    it(`a create that meets ${name} is refused as ${kind}`, async () => {
      const request = aRequest(changes);
      if (fault) await cloud().fault(fault, request.zone);
      await assert.rejects(tpus.create(request), {
        name: 'TpuError',
        kind,
        zone: request.zone,
        message: new RegExp(`^Failed to create ${request.name} in ${request.zone}: `),
      });
    });

  it('a cloud without an answer is a transient failure', async () => {
    const gone = openTpus({project: 'p', endpoint: 'http://127.0.0.1:9'});
    await assert.rejects(gone.list(), {name: 'TpuError', kind: 'transient', message: /ECONNREFUSED/});
    await assert.rejects(gone.create(aRequest()), {name: 'TpuError', kind: 'transient'});
    await assert.rejects(gone.delete('tpu-us-central1-a-0', 'us-central1-a'), {kind: 'transient'});
  });
});
