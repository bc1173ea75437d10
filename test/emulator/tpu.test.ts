import assert from 'node:assert/strict';
import {existsSync, readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {v2} from '@google-cloud/tpu';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import {Scratch, until} from './a-cloud.ts';

const parent = 'projects/gleaner-local/locations/us-central1-a';
const name = `${parent}/nodes/tpu-us-central1-a-0`;

/** A node whose VM says that it runs, and goes on until it is stopped. */
const aNode = (script = 'echo up; sleep 1000 & wait') => ({
  acceleratorType: 'v5litepod-1',
  runtimeVersion: 'v2-alpha-tpuv5-lite',
  labels: {gleaner: 'worker'},
  metadata: {'startup-script': `#!/bin/bash\n${script}\n`, 'gleaner-worker': 'tpu-us-central1-a-0'},
  schedulingConfig: {spot: true},
});

describe('Cloud TPU through @google-cloud/tpu', () => {
  const scratch = new Scratch();
  const clients: v2.TpuClient[] = [];
  afterEach(async () => {
    for (const client of clients.splice(0)) await client.close();
    await scratch.end();
  });
  const aClient = (cloud: LocalCloud) => {
    const client = new v2.TpuClient({projectId: cloud.project, ...clientOptionsFor(cloud.url, cloud.token)});
    clients.push(client);
    return client;
  };
  const nodeId = 'tpu-us-central1-a-0';
  const stateOf = async (client: v2.TpuClient) => (await client.getNode({name}))[0].state;
  const isRunning = async (cloud: LocalCloud) => {
    const {tpus} = (await (await fetch(`${cloud.url}/_local`)).json()) as {tpus: {is_running: boolean}[]};
    return tpus[0]?.is_running;
  };
  const console_ = (cloud: LocalCloud, boot = 1) => {
    const file = join(cloud.dir, 'logs', `${nodeId}-${boot}.log`);
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  };
  const aRunningNode = async (cloud: LocalCloud, script?: string) => {
    const client = aClient(cloud);
    const [operation] = await client.createNode({parent, nodeId, node: aNode(script)});
    await operation.promise();
    await until('its VM prints', () => console_(cloud) !== '');
    return client;
  };

  it('makes a node, lists it everywhere, and deletes it', async () => {
    const cloud = await scratch.cloud();
    const client = aClient(cloud);
    const [creation] = await client.createNode({parent, nodeId, node: aNode()});
    const [made] = await creation.promise();
    assert.equal(made.name, name);
    const [node] = await client.getNode({name});
    assert.equal(node.state, 'READY');
    assert.equal(node.health, 'HEALTHY');
    assert.deepEqual(node.labels, {gleaner: 'worker'});
    assert.equal(node.schedulingConfig?.spot, true);
    assert.equal(node.metadata?.['gleaner-worker'], nodeId);
    assert.match(String(node.id), /^\d+$/);
    assert.ok(Number(node.createTime?.seconds) > 1_700_000_000);
    for (const place of [parent, 'projects/gleaner-local/locations/-']) {
      const [nodes] = await client.listNodes({parent: place});
      assert.deepEqual(
        nodes.map(found => found.name),
        [name],
      );
    }
    const [elsewhere] = await client.listNodes({parent: 'projects/gleaner-local/locations/us-east5-b'});
    assert.deepEqual(elsewhere, []);

    const [deletion] = await client.deleteNode({name});
    await deletion.promise();
    await assert.rejects(client.getNode({name}), {code: 5});
    await assert.rejects(client.deleteNode({name}), {code: 5});
  });

  it('answers a second delete with the operation of the first', async () => {
    const cloud = await scratch.cloud({delete_ms: 3000});
    const client = await aRunningNode(cloud);
    const [first] = await client.deleteNode({name});
    const [second] = await client.deleteNode({name});
    assert.equal(second.name, first.name);
    assert.equal(await stateOf(client), 'DELETING');
    await first.promise();
  });

  it('refuses a name that is taken, in every state', async () => {
    const cloud = await scratch.cloud({create_ms: 3000, delete_ms: 3000});
    const client = aClient(cloud);
    const [creation] = await client.createNode({parent, nodeId, node: aNode()});
    const again = () => client.createNode({parent, nodeId, node: aNode()});
    await assert.rejects(again(), /already exists/);
    await creation.promise();
    await assert.rejects(again(), /already exists/);
    await cloud.fault('preempt', nodeId);
    await assert.rejects(again(), /already exists/);
    const [deletion] = await client.deleteNode({name});
    await assert.rejects(again(), /already exists/);
    await deletion.promise();
    const [second] = await again();
    await second.promise();
  });

  it('gives a name that is made again another id', async () => {
    const cloud = await scratch.cloud();
    const client = await aRunningNode(cloud);
    const [before] = await client.getNode({name});
    await (await client.deleteNode({name}))[0].promise();
    await (await client.createNode({parent, nodeId, node: aNode()}))[0].promise();
    const [after] = await client.getNode({name});
    assert.notEqual(String(after.id), String(before.id));
  });

  const bad = [
    {say: 'a bad id', request: {nodeId: 'TPU_1', node: aNode()}, says: /TPU_1/},
    {say: 'no id', request: {node: aNode()}, says: /Invalid node id/},
    {
      say: 'an unknown accelerator',
      request: {nodeId, node: {...aNode(), acceleratorType: 'gpu-1'}},
      says: /gpu-1/,
    },
    {
      say: 'a slice of many hosts',
      request: {nodeId, node: {...aNode(), acceleratorType: 'v4-32'}},
      says: /one host/,
    },
    {
      say: 'no runtime version',
      request: {nodeId, node: {...aNode(), runtimeVersion: ''}},
      says: /runtimeVersion/,
    },
    {say: 'a bad label', request: {nodeId, node: {...aNode(), labels: {Big: 'X'}}}, says: /label Big/},
    {
      say: 'an unknown zone',
      request: {parent: 'projects/gleaner-local/locations/mars-a', nodeId, node: aNode()},
      says: /mars-a/,
    },
    {
      say: 'another project',
      request: {parent: 'projects/other/locations/us-east5-b', nodeId, node: aNode()},
      says: /other/,
    },
  ];
  it('refuses a create with …', async () => {
    const client = aClient(await scratch.cloud());
    for (const {say, request, says} of bad) {
      await assert.rejects(client.createNode({parent, ...request}), says, say);
    }
    assert.deepEqual((await client.listNodes({parent}))[0], []);
  });

  describe('under faults', () => {
    it('preempt: the VM is gone, the node stays listed until it is deleted', async () => {
      const cloud = await scratch.cloud();
      const client = await aRunningNode(cloud);
      assert.match(await cloud.fault('preempt', nodeId), /PREEMPTED/);
      assert.equal(await stateOf(client), 'PREEMPTED');
      assert.equal(await isRunning(cloud), false);
      const [deletion] = await client.deleteNode({name});
      await deletion.promise();
      assert.deepEqual(readdirSync(join(cloud.dir, 'vms')), []);
      assert.ok(console_(cloud).includes('up'), 'the log is kept');
    });

    it('preempt while it is made: the node is PREEMPTED and never boots', async () => {
      const cloud = await scratch.cloud({create_ms: 10_000});
      const client = aClient(cloud);
      const [creation] = await client.createNode({parent, nodeId, node: aNode()});
      await cloud.fault('preempt', nodeId);
      await creation.promise();
      assert.equal(await stateOf(client), 'PREEMPTED');
      assert.equal(console_(cloud), '');
    });

    it('preempt-with-notice: metadata and SIGTERM first, the end a while later', async () => {
      const cloud = await scratch.cloud({preemption_notice_ms: 5000});
      const script = `trap 'echo told; curl -s -H Metadata-Flavor:Google $URL/instance/preempted' TERM
URL=http://$GCE_METADATA_HOST/computeMetadata/v1
echo up; while true; do sleep 0.05; done`;
      const client = await aRunningNode(cloud, script);
      await cloud.fault('preempt-with-notice', nodeId);
      assert.equal(await stateOf(client), 'READY');
      await until('the VM was told', () => /told\nTRUE/.test(console_(cloud)));
      assert.equal(await isRunning(cloud), true);
      await until('it is preempted', async () => (await stateOf(client)) === 'PREEMPTED');
      await until('its VM is gone', async () => !(await isRunning(cloud)));
    });

    it('vanish: node, VM and disk are gone', async () => {
      const cloud = await scratch.cloud();
      const client = await aRunningNode(cloud);
      await cloud.fault('vanish', nodeId);
      await assert.rejects(client.getNode({name}), {code: 5});
      assert.deepEqual(readdirSync(join(cloud.dir, 'vms')), []);
    });

    it('dead: the VM is gone and the node stays READY', async () => {
      const cloud = await scratch.cloud();
      const client = await aRunningNode(cloud);
      await cloud.fault('dead', nodeId);
      assert.equal(await stateOf(client), 'READY');
      assert.equal(await isRunning(cloud), false);
    });

    it('stockout: the operation fails with code 8 and Google\u2019s words, and our adapter understands', async () => {
      const cloud = await scratch.cloud();
      const client = aClient(cloud);
      await cloud.fault('stockout', 'us-central1-a');
      const [creation] = await client.createNode({parent, nodeId, node: aNode()});
      await assert.rejects(creation.promise(), {
        code: 8,
        message: /There is no more capacity in the zone "us-central1-a"/,
      });
      assert.deepEqual((await client.listNodes({parent}))[0], []);
      const tpus = openTpus({project: cloud.project, endpoint: cloud.url, token: cloud.token});
      const request = {
        ...{name: nodeId, zone: 'us-central1-a', accelerator: 'v5litepod-1', spot: true},
        ...{runtime_version: 'v2-alpha-tpuv5-lite', labels: {}, metadata: {}, queue: null},
      };
      await assert.rejects(tpus.create(request), {kind: 'no-capacity'});
      await cloud.fault('clear', 'all');
      await cloud.fault('quota', 'all');
      await assert.rejects(tpus.create(request), {kind: 'quota'});
      await cloud.fault('clear', 'quota');
      assert.equal(await tpus.create(request), 'started');
      assert.equal(await tpus.create(request), 'exists');
    });

    it('unreachable: the list says so and leaves the zone out, and the zone does not answer', async () => {
      const cloud = await scratch.cloud();
      const client = await aRunningNode(cloud);
      await cloud.fault('unreachable', 'us-central1-a');
      await assert.rejects(client.getNode({name}), {code: 14});
      const tpus = openTpus({project: cloud.project, endpoint: cloud.url, token: cloud.token});
      assert.deepEqual(await tpus.list(), {tpus: [], unreachable: ['us-central1-a']});
      assert.equal(await isRunning(cloud), true);
      await cloud.fault('clear', 'unreachable');
      assert.equal((await tpus.list()).tpus.length, 1);
    });

    it('slow-create: the operation stays open, and a delete ends it', async () => {
      const cloud = await scratch.cloud();
      const client = aClient(cloud);
      await cloud.fault('slow-create', 'us-central1-a=1000');
      const [creation] = await client.createNode({parent, nodeId, node: aNode()});
      const progress = await client.checkCreateNodeProgress(creation.name ?? '');
      assert.equal(progress.done, false);
      assert.equal(await stateOf(client), 'CREATING');
      const [deletion] = await client.deleteNode({name});
      await assert.rejects(creation.promise(), /deleted during its creation/);
      await deletion.promise();
    });
  });

  it('takes up a life that a restart of the cloud interrupted, in each of its states', async () => {
    const cloud = await scratch.cloud({create_ms: 400});
    const client = aClient(cloud);
    await client.createNode({parent, nodeId: 'creating', node: aNode()});
    await (await client.createNode({parent, nodeId: 'deleting', node: aNode()}))[0].promise();
    await (
      await client.createNode({parent, nodeId, node: aNode('echo up >> boots; cat boots; sleep 1000')})
    )[0].promise();
    await until('its VM prints', () => console_(cloud) !== '');
    await client.createNode({parent, nodeId: 'late', node: aNode()});
    await client.deleteNode({name: `${parent}/nodes/deleting`});
    await cloud.close();

    const again = await scratch.cloud({dir: cloud.dir});
    const states = async () => {
      const [nodes] = await aClient(again).listNodes({parent});
      return Object.fromEntries(nodes.map(node => [node.name?.split('/').at(-1), node.state]));
    };
    await until('all is settled', async () => {
      const now = await states();
      return now.late === 'READY' && now.creating === 'READY' && !('deleting' in now);
    });
    assert.equal((await states())[nodeId], 'READY');
    await until('the same disk booted again', () => console_(again, 2) === 'up\nup\n');
  });
});
