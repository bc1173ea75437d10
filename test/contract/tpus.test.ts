import assert from 'node:assert/strict';
import {once} from 'node:events';
import {createServer} from 'node:http';
import type {AddressInfo} from 'node:net';
import {setTimeout as sleep} from 'node:timers/promises';
import {urlWithToken} from '../../emulator/guard.ts';
import {composeDeps} from '../../shared/compose.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {Tpu, TpuRequest, Tpus} from '../../shared/ports.ts';
import {aConfig} from '../support/builders.ts';
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
    queue: null,
    ...changes,
  };
}

describe('Tpus: Cloud TPU', () => {
  const cloud = useLocalCloud({queue_ms: 20});
  let tpus: Tpus;

  beforeEach(() => {
    const {project, url, token} = cloud();
    tpus = openTpus({project, endpoint: url, token});
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
      symptoms: [],
      queued: null,
    });
    assert.equal(new Date(created_at).toISOString(), created_at);
    assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
  });

  it('are found one by one as the list shows them, nodes and requests in the queue', async () => {
    await tpus.create(aRequest());
    const queue = {
      valid_until_at: new Date(Date.now() + 3_600_000).toISOString(),
      request_id: '5f5d5f4c-30fe-4f0a-9c5e-6a2b7c8d9e0f',
    };
    await tpus.create(aRequest({name: 'tpu-us-central1-a-1', queue}));
    const listed = await listUntil(found => found.filter(({state}) => state === 'READY').length === 2);
    for (const tpu of listed) assert.deepEqual(await tpus.get(tpu.name, tpu.zone), tpu);
  });

  it('that do not exist are found absent', async () => {
    assert.equal(await tpus.get('tpu-us-central1-a-0', 'us-central1-a'), undefined);
  });

  it('in a zone without an answer are not found absent: get throws', async () => {
    await tpus.create(aRequest());
    await cloud().fault('unreachable', 'us-central1-a');
    await assert.rejects(tpus.get('tpu-us-central1-a-0', 'us-central1-a'), {
      name: 'TpuError',
      kind: 'transient',
    });
  });

  it('are asked for with all that the request says', async () => {
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

  it('are who the configuration says the workers are', async () => {
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

  describe('in the queue', () => {
    const name = 'tpu-us-central1-a-0';
    const zone = 'us-central1-a';
    const inQueue = (seconds = 3600): TpuRequest =>
      aRequest({
        queue: {
          valid_until_at: new Date(Date.now() + seconds * 1000).toISOString(),
          request_id: '00000000-0000-4000-8000-000000000001',
        },
      });
    const resource = async (path: string) => {
      const {project, url} = cloud();
      const answer = await fetch(`${url}/v2/projects/${project}/locations/${zone}/${path}`);
      // biome-ignore lint/suspicious/noExplicitAny: the API's own JSON, of which each test reads another part
      return (await answer.json()) as any;
    };

    it('are asked for with all that the request says, and its end', async () => {
      const request = inQueue();
      assert.equal(await tpus.create(request), 'started');
      const queued = await resource(`queuedResources/${name}`);
      const [{nodeId, node}] = queued.tpu.nodeSpec;
      assert.deepEqual([nodeId, node.metadata, node.labels], [name, request.metadata, request.labels]);
      assert.deepEqual(queued.spot, {});
      const end = queued.queueingPolicy.validUntilTime;
      const late_ms = Date.parse(end) - Date.parse(request.queue?.valid_until_at ?? '');
      assert.ok(late_ms >= 0 && late_ms < 1000, end);
      await listUntil(([one]) => one?.state === 'READY');
      const made = await resource(`nodes/${name}`);
      assert.deepEqual(made.schedulingConfig, {spot: true});
      assert.match(String(made.queuedResource), new RegExp(`/queuedResources/${name}$`));
    });

    it('are one entry with what they wait for, before and after there is a node', async () => {
      await cloud().fault('stockout', zone);
      await tpus.create(inQueue());
      const [waiting] = await listUntil(([one]) => one?.queued?.state === 'WAITING_FOR_RESOURCES');
      const labels = {gleaner: 'yes', pool: 'tpu'};
      const valid_until_at = waiting?.queued?.valid_until_at ?? null;
      const queued = {state: 'WAITING_FOR_RESOURCES', initiator: 'USER', error: null, valid_until_at, labels};
      const {created_at, ...rest} = waiting ?? {};
      assert.deepEqual(rest, {
        ...{name, zone, state: null, health: 'HEALTH_UNSPECIFIED', labels, symptoms: [], queued},
      });
      assert.ok(Math.abs(Date.parse(valid_until_at ?? '') - Date.now() - 3_600_000) < 60_000);
      assert.ok(Math.abs(Date.parse(created_at ?? '') - Date.now()) < 60_000);
      await cloud().fault('clear', 'stockout');
      const active = await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
      assert.deepEqual([active.length, active[0]?.state, active[0]?.labels], [1, 'READY', labels]);
    });

    it('may be asked for again, under the same id and under another', async () => {
      await cloud().fault('stockout', zone);
      const request = inQueue();
      assert.equal(await tpus.create(request), 'started');
      assert.equal(await tpus.create(request), 'started', 'the same request');
      const valid_until_at = request.queue?.valid_until_at ?? '';
      const other = {valid_until_at, request_id: '00000000-0000-4000-8000-000000000002'};
      assert.equal(await tpus.create({...request, queue: other}), 'exists');
      assert.equal((await tpus.list()).tpus.length, 1);
    });

    it('go with their node, before they have one too, and may be deleted again', async () => {
      for (const fault of ['stockout', undefined]) {
        if (fault) await cloud().fault(fault, zone);
        await tpus.create(inQueue());
        await listUntil(([one]) => one?.queued?.state === (fault ? 'WAITING_FOR_RESOURCES' : 'ACTIVE'));
        assert.equal(await tpus.delete(name, zone), 'started');
        assert.ok(['started', 'absent'].includes(await tpus.delete(name, zone)));
        await listUntil(found => found.length === 0);
        assert.equal(await tpus.delete(name, zone), 'absent');
        await cloud().fault('clear', 'all');
      }
    });

    for (const [fault, target, kind] of [
      ['quota', zone, 'quota'],
      ['late-failure', `${zone}=0.05`, 'transient'],
      ['fail', name, 'transient'],
    ] as const)
      it(`FAILED because of ${fault} say so as ${kind}, and stay until they are deleted`, async () => {
        await cloud().fault(fault === 'fail' ? 'stockout' : fault, target === name ? zone : target);
        await tpus.create(inQueue());
        if (fault === 'fail') await cloud().fault('fail', name);
        const [failed] = await listUntil(([one]) => one?.queued?.state === 'FAILED');
        assert.deepEqual([failed?.state, failed?.queued?.error?.kind], [null, kind]);
        assert.ok(failed?.queued?.error?.message);
      });

    it('FAILED at their end are a stock-out', async () => {
      await cloud().fault('stockout', zone);
      await tpus.create(inQueue(3));
      const [failed] = await listUntil(([one]) => one?.queued?.state === 'FAILED');
      assert.equal(failed?.queued?.error?.kind, 'no-capacity');
    });

    for (const fault of ['preempt', 'vanish', 'suspend'])
      it(`are SUSPENDED by ${fault}, which the service did`, async () => {
        await tpus.create(inQueue());
        await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
        await cloud().fault(fault, name);
        const [one] = await listUntil(([one]) => one?.queued?.state === 'SUSPENDED' && one.state === null);
        assert.equal(one?.queued?.initiator, 'SERVICE');
      });

    it('whose node somebody deleted are SUSPENDED by a user', async () => {
      await tpus.create(inQueue());
      await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
      const {project, url, token} = cloud();
      await fetch(`${urlWithToken(url, token)}/v2/projects/${project}/locations/${zone}/nodes/${name}`, {
        method: 'DELETE',
      });
      const [one] = await listUntil(([one]) => one?.queued?.state === 'SUSPENDED');
      assert.equal(one?.queued?.initiator, 'USER');
    });

    it('of a zone that answers for one of the two alone are not half known', async () => {
      await tpus.create(inQueue());
      await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
      const {project, url} = cloud();
      for (const silent of ['/nodes', '/queuedResources']) {
        const proxy = createServer(async (request, response) => {
          const isSilent = request.url?.split('?')[0]?.endsWith(silent);
          const unreachable = [`projects/${project}/locations/${zone}`];
          const answer = isSilent ? {unreachable} : await (await fetch(`${url}${request.url}`)).json();
          response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
        }).listen(0, '127.0.0.1');
        await once(proxy, 'listening');
        const {port} = proxy.address() as AddressInfo;
        const behind = openTpus({project, endpoint: `http://127.0.0.1:${port}`});
        assert.deepEqual(await behind.list(), {tpus: [], unreachable: [zone]}, silent);
        proxy.closeAllConnections();
        proxy.close();
      }
    });

    it('of a zone that gives no answer are unknown', async () => {
      await cloud().fault('stockout', zone);
      await tpus.create(inQueue());
      await cloud().fault('unreachable', zone);
      assert.deepEqual(await tpus.list(), {tpus: [], unreachable: [zone]});
    });
  });

  it('whose create never ends stay CREATING, and can be deleted', async () => {
    await cloud().fault('endless-create', 'us-central1-a');
    assert.equal(await tpus.create(aRequest()), 'started');
    assert.equal((await tpus.list()).tpus[0]?.state, 'CREATING');
    assert.equal(await tpus.delete('tpu-us-central1-a-0', 'us-central1-a'), 'started');
    await listUntil(found => found.length === 0);
  });

  it('whose create fails late are started, and then not there', async () => {
    await cloud().fault('late-failure', 'us-central1-a=3');
    assert.equal(await tpus.create(aRequest()), 'started');
    assert.equal((await tpus.list()).tpus[0]?.state, 'CREATING');
    await listUntil(found => found.length === 0);
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
