import assert from 'node:assert/strict';
import {createServer} from 'node:http';
import {urlWithToken} from '../../emulator/http/guard.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {TpuRequest} from '../../shared/ports/ports.ts';
import {listen} from '../support/machine/listen.ts';
import {useTpus} from './tpu-cases.ts';
import {aRequest} from './tpus-contract.ts';

describe('Tpus: the queue of Cloud TPU', () => {
  const {cloud, client, listUntil} = useTpus();

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
    const {project, url, token} = cloud();
    const answer = await fetch(
      `${urlWithToken(url, token)}/v2/projects/${project}/locations/${zone}/${path}`,
    );
    // biome-ignore lint/suspicious/noExplicitAny: JSON of the API: each test reads another part
    return (await answer.json()) as any;
  };

  it('a queued resource has every property of its request, and its expiry', async () => {
    const request = inQueue();
    assert.equal(await client().create(request), 'started');
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

  it('a queued resource and its node are one entry', async () => {
    await cloud().fault('stockout', zone);
    await client().create(inQueue());
    const [waiting] = await listUntil(([one]) => one?.queued?.state === 'WAITING_FOR_RESOURCES');
    const labels = {'managed-by': 'gleaner', pool: 'tpu'};
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

  it('a repeated request is started under its id, and exists under another id', async () => {
    await cloud().fault('stockout', zone);
    const request = inQueue();
    assert.equal(await client().create(request), 'started');
    assert.equal(await client().create(request), 'started', 'a repeated request');
    const valid_until_at = request.queue?.valid_until_at ?? '';
    const other = {valid_until_at, request_id: '00000000-0000-4000-8000-000000000002'};
    assert.equal(await client().create({...request, queue: other}), 'exists');
    assert.equal((await client().list()).tpus.length, 1);
  });

  it('a delete removes the queued resource with its node, and succeeds again', async () => {
    for (const fault of ['stockout', undefined]) {
      if (fault) await cloud().fault(fault, zone);
      await client().create(inQueue());
      await listUntil(([one]) => one?.queued?.state === (fault ? 'WAITING_FOR_RESOURCES' : 'ACTIVE'));
      assert.equal(await client().delete(name, zone), 'started');
      assert.ok(['started', 'absent'].includes(await client().delete(name, zone)));
      await listUntil(found => found.length === 0);
      assert.equal(await client().delete(name, zone), 'absent');
      await cloud().fault('clear', 'all');
    }
  });

  it('deleting only a queued resource leaves a node of its name', async () => {
    await client().create({...inQueue(), queue: null});
    await listUntil(([one]) => one?.state === 'READY');
    assert.equal(await client().delete(name, zone, 'queued'), 'absent');
    assert.equal((await client().get(name, zone))?.state, 'READY');
    await client().create({...inQueue(), name: `${name}-queued`});
    assert.equal(await client().delete(`${name}-queued`, zone, 'queued'), 'started');
  });

  for (const [fault, target, kind] of [
    ['late-failure', `${zone}=0.05`, 'transient'],
    ['fail', name, 'transient'],
  ] as const)
    it(`a queued resource that FAILED by fault ${fault} has kind ${kind}`, async () => {
      await cloud().fault(fault === 'fail' ? 'stockout' : fault, target === name ? zone : target);
      await client().create(inQueue());
      if (fault === 'fail') await cloud().fault('fail', name);
      const [failed] = await listUntil(([one]) => one?.queued?.state === 'FAILED');
      assert.deepEqual([failed?.state, failed?.queued?.error?.kind], [null, kind]);
      assert.ok(failed?.queued?.error?.message);
    });

  it('an expired queued resource is a stock-out', async () => {
    await cloud().fault('stockout', zone);
    await client().create(inQueue(3));
    const [failed] = await listUntil(([one]) => one?.queued?.state === 'FAILED');
    assert.equal(failed?.queued?.error?.kind, 'no-capacity');
  });

  for (const fault of ['preempt', 'vanish', 'suspend'])
    it(`fault ${fault} makes a queued resource SUSPENDED by the service`, async () => {
      await client().create(inQueue());
      await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
      await cloud().fault(fault, name);
      const [one] = await listUntil(([one]) => one?.queued?.state === 'SUSPENDED' && one.state === null);
      assert.equal(one?.queued?.initiator, 'SERVICE');
    });

  it('deleting the node makes its queued resource SUSPENDED by a user', async () => {
    await client().create(inQueue());
    await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
    const {project, url, token} = cloud();
    await fetch(`${urlWithToken(url, token)}/v2/projects/${project}/locations/${zone}/nodes/${name}`, {
      method: 'DELETE',
    });
    const [one] = await listUntil(([one]) => one?.queued?.state === 'SUSPENDED');
    assert.equal(one?.queued?.initiator, 'USER');
  });

  it('a zone that answers only one of the two lists is unreachable', async () => {
    await client().create(inQueue());
    await listUntil(([one]) => one?.queued?.state === 'ACTIVE');
    const {project, url, token} = cloud();
    for (const silent of ['/nodes', '/queuedResources']) {
      const proxy = createServer(async (request, response) => {
        const isSilent = request.url?.split('?')[0]?.endsWith(silent);
        const unreachable = [`projects/${project}/locations/${zone}`];
        const answer = isSilent
          ? {unreachable}
          : await (await fetch(`${urlWithToken(url, token)}${request.url}`)).json();
        response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
      });
      const endpoint = `http://${await listen(proxy)}`;
      const behind = openTpus({project, endpoint});
      assert.deepEqual(await behind.list(), {tpus: [], unreachable: [zone]}, silent);
      proxy.closeAllConnections();
      proxy.close();
    }
  });

  it('queued resources of a zone without an answer are not listed', async () => {
    await cloud().fault('stockout', zone);
    await client().create(inQueue());
    await cloud().fault('unreachable', zone);
    assert.deepEqual(await client().list(), {tpus: [], unreachable: [zone]});
  });
});
