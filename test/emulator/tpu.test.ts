import assert from 'node:assert/strict';
import {Scratch} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {aNode, consoleOf, NODE, NODE_ID, PARENT, stateOf, TpuClients} from './tpu-nodes.ts';

describe('Cloud TPU through @google-cloud/tpu', () => {
  const clients = new TpuClients();
  const scratch = new Scratch(afterEach);

  it('creates a node, lists the node in its zone and over all zones, and deletes the node', async () => {
    const cloud = await scratch.cloud();
    const client = clients.open(cloud);
    const [creation] = await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()});
    const [made] = await creation.promise();
    assert.equal(made.name, NODE);
    const [node] = await client.getNode({name: NODE});
    assert.equal(node.state, 'READY');
    assert.equal(node.health, 'HEALTHY');
    assert.deepEqual(node.labels, {gleaner: 'worker'});
    assert.equal(node.schedulingConfig?.spot, true);
    assert.equal(node.metadata?.['gleaner-worker'], NODE_ID);
    assert.match(String(node.id), /^\d+$/);
    assert.ok(Number(node.createTime?.seconds) > 1_700_000_000);
    for (const place of [PARENT, 'projects/gleaner-local/locations/-']) {
      const [nodes] = await client.listNodes({parent: place});
      assert.deepEqual(
        nodes.map(found => found.name),
        [NODE],
      );
    }
    const [elsewhere] = await client.listNodes({parent: 'projects/gleaner-local/locations/us-east5-b'});
    assert.deepEqual(elsewhere, []);

    const [deletion] = await client.deleteNode({name: NODE});
    await deletion.promise();
    await assert.rejects(client.getNode({name: NODE}), {code: 5});
    await assert.rejects(client.deleteNode({name: NODE}), {code: 5});
  });

  it('answers a second delete with the operation of the first', async () => {
    const cloud = await scratch.cloud({delete_ms: 3000});
    const client = await clients.openWithNode(cloud);
    const [first] = await client.deleteNode({name: NODE});
    const [second] = await client.deleteNode({name: NODE});
    assert.equal(second.name, first.name);
    assert.equal(await stateOf(client), 'DELETING');
    await first.promise();
  });

  it('refuses to create a node of an existing name, in every state of the node', async () => {
    const cloud = await scratch.cloud({create_ms: 3000, delete_ms: 3000});
    const client = clients.open(cloud);
    const [creation] = await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()});
    const again = () => client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()});
    await assert.rejects(again(), /already exists/);
    await creation.promise();
    await assert.rejects(again(), /already exists/);
    await cloud.fault('preempt', NODE_ID);
    await assert.rejects(again(), /already exists/);
    const [deletion] = await client.deleteNode({name: NODE});
    await assert.rejects(again(), /already exists/);
    await deletion.promise();
    const [second] = await again();
    await second.promise();
  });

  it('gives each incarnation of a name a new id', async () => {
    const cloud = await scratch.cloud();
    const client = await clients.openWithNode(cloud);
    const [before] = await client.getNode({name: NODE});
    await (await client.deleteNode({name: NODE}))[0].promise();
    await (await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()}))[0].promise();
    const [after] = await client.getNode({name: NODE});
    assert.notEqual(String(after.id), String(before.id));
  });

  const bad = [
    {say: 'a bad id', request: {nodeId: 'TPU_1', node: aNode()}, says: /TPU_1/},
    {say: 'no id', request: {node: aNode()}, says: /Invalid node id/},
    {
      say: 'an unknown accelerator',
      request: {nodeId: NODE_ID, node: {...aNode(), acceleratorType: 'gpu-1'}},
      says: /gpu-1/,
    },
    {
      say: 'a slice of eight hosts',
      request: {nodeId: NODE_ID, node: {...aNode(), acceleratorType: 'v4-64'}},
      says: /up to 4 hosts/,
    },
    {
      say: 'no runtime version',
      request: {nodeId: NODE_ID, node: {...aNode(), runtimeVersion: ''}},
      says: /runtimeVersion/,
    },
    {
      say: 'a bad label',
      request: {nodeId: NODE_ID, node: {...aNode(), labels: {Big: 'X'}}},
      says: /label Big/,
    },
    {
      say: 'an unknown zone',
      request: {parent: 'projects/gleaner-local/locations/mars-a', nodeId: NODE_ID, node: aNode()},
      says: /mars-a/,
    },
    {
      say: 'another project',
      request: {parent: 'projects/other/locations/us-east5-b', nodeId: NODE_ID, node: aNode()},
      says: /other/,
    },
  ];
  it('refuses to create a node with an invalid id, type, version, label, zone or project', async () => {
    const client = clients.open(await scratch.cloud());
    for (const {say, request, says} of bad) {
      await assert.rejects(client.createNode({parent: PARENT, ...request}), says, say);
    }
    assert.deepEqual((await client.listNodes({parent: PARENT}))[0], []);
  });

  it('continues nodes in every state after a restart of the cloud', async () => {
    const cloud = await scratch.cloud({create_ms: 400});
    const client = clients.open(cloud);
    await client.createNode({parent: PARENT, nodeId: 'creating', node: aNode()});
    await (await client.createNode({parent: PARENT, nodeId: 'deleting', node: aNode()}))[0].promise();
    await (
      await client.createNode({
        parent: PARENT,
        nodeId: NODE_ID,
        node: aNode('echo up >> boots; cat boots; sleep 1000'),
      })
    )[0].promise();
    await until('the VM prints a line', () => consoleOf(cloud) !== '');
    await client.createNode({parent: PARENT, nodeId: 'late', node: aNode()});
    await client.deleteNode({name: `${PARENT}/nodes/deleting`});
    await cloud.close();

    const again = await scratch.cloud({dir: cloud.dir});
    const states = async () => {
      const [nodes] = await clients.open(again).listNodes({parent: PARENT});
      return Object.fromEntries(nodes.map(node => [node.name?.split('/').at(-1), node.state]));
    };
    await until('every node is READY or gone', async () => {
      const now = await states();
      return now.late === 'READY' && now.creating === 'READY' && !('deleting' in now);
    });
    assert.equal((await states())[NODE_ID], 'READY');
    await until('the VM boots again on the same disk', () => consoleOf(again, 2) === 'up\nup\n');
  });
});
