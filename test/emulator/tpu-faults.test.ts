import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {join} from 'node:path';
import {Scratch} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {aNode, consoleOf, isRunning, NODE, NODE_ID, PARENT, stateOf, TpuClients, ZONE} from './tpu-nodes.ts';

describe('Cloud TPU under a fault', () => {
  const clients = new TpuClients();
  const scratch = new Scratch(afterEach);

  it('preempt stops the VM and lists the node as PREEMPTED until a delete', async () => {
    const cloud = await scratch.cloud();
    const client = await clients.openWithNode(cloud);
    assert.match(await cloud.fault('preempt', NODE_ID), /PREEMPTED/);
    assert.equal(await stateOf(client), 'PREEMPTED');
    assert.equal(await isRunning(cloud), false);
    const [deletion] = await client.deleteNode({name: NODE});
    await deletion.promise();
    assert.deepEqual(readdirSync(join(cloud.dir, 'vms')), []);
    assert.ok(consoleOf(cloud).includes('up'), 'the log stays');
  });

  it('preempt of a node in creation keeps its VM from booting', async () => {
    const cloud = await scratch.cloud({create_ms: 10_000});
    const client = clients.open(cloud);
    const [creation] = await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()});
    await cloud.fault('preempt', NODE_ID);
    await creation.promise();
    assert.equal(await stateOf(client), 'PREEMPTED');
    assert.equal(consoleOf(cloud), '');
  });

  it('preempt-with-notice sends metadata and SIGTERM before the preemption', async () => {
    const cloud = await scratch.cloud({preemption_notice_ms: 5000});
    const script = `trap 'echo notified; until curl -s -H Metadata-Flavor:Google $URL/instance/preempted; do :; done' TERM
URL=http://$GCE_METADATA_HOST/computeMetadata/v1
echo up; while true; do sleep 0.05; done`;
    const client = await clients.openWithNode(cloud, script);
    await cloud.fault('preempt-with-notice', NODE_ID);
    assert.equal(await stateOf(client), 'READY');
    await until('the VM gets the notice', () => /notified[\s\S]*TRUE/.test(consoleOf(cloud)));
    assert.equal(await isRunning(cloud), true);
    await until('the node is PREEMPTED', async () => (await stateOf(client)) === 'PREEMPTED');
    await until('the VM is off', async () => !(await isRunning(cloud)));
  });

  it('maintenance only sends metadata', async () => {
    const cloud = await scratch.cloud({preemption_notice_ms: 600_000});
    const script = `URL=http://$GCE_METADATA_HOST/computeMetadata/v1/instance
get() { curl -sf -H Metadata-Flavor:Google "$URL/$1" || echo none; }
get "upcoming-maintenance?recursive=true&alt=json"; get maintenance-event
trap 'echo signalled' TERM
echo up; while true; do get maintenance-event; get "upcoming-maintenance?recursive=true&alt=json"; sleep 0.2; done`;
    const client = await clients.openWithNode(cloud, script);
    await until('the VM is up', () => /^NONEup$/m.test(consoleOf(cloud)));
    await cloud.fault('maintenance', NODE_ID);
    await until('the VM gets the notice', () =>
      /^none\nNONEup[\s\S]*TERMINATE_ON_HOST_MAINTENANCE.*"maintenanceStatus":"ONGOING"/m.test(
        consoleOf(cloud),
      ),
    );
    assert.ok(!consoleOf(cloud).includes('signalled'));
    assert.equal(await stateOf(client), 'READY');
  });

  it('maintenance ends with the preemption', async () => {
    const cloud = await scratch.cloud({preemption_notice_ms: 100});
    const client = await clients.openWithNode(cloud);
    await cloud.fault('maintenance', NODE_ID);
    await until('the node is PREEMPTED', async () => (await stateOf(client)) === 'PREEMPTED');
  });

  it('vanish removes the node, the VM and the disk', async () => {
    const cloud = await scratch.cloud();
    const client = await clients.openWithNode(cloud);
    await cloud.fault('vanish', NODE_ID);
    await assert.rejects(client.getNode({name: NODE}), {code: 5});
    assert.deepEqual(readdirSync(join(cloud.dir, 'vms')), []);
  });

  it('dead stops the VM and leaves the node READY', async () => {
    const cloud = await scratch.cloud();
    const client = await clients.openWithNode(cloud);
    await cloud.fault('dead', NODE_ID);
    assert.equal(await stateOf(client), 'READY');
    assert.equal(await isRunning(cloud), false);
  });

  it("stockout fails the operation with code 8 and Google's message", async () => {
    const cloud = await scratch.cloud();
    const client = clients.open(cloud);
    await cloud.fault('stockout', ZONE);
    const [creation] = await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()});
    await assert.rejects(creation.promise(), {
      code: 8,
      message: /There is no more capacity in the zone "us-central1-a"/,
    });
    assert.deepEqual((await client.listNodes({parent: PARENT}))[0], []);
  });

  it('unreachable hides the nodes of the zone, whose VMs continue', async () => {
    const cloud = await scratch.cloud();
    const client = await clients.openWithNode(cloud);
    await cloud.fault('unreachable', ZONE);
    await assert.rejects(client.getNode({name: NODE}), {code: 14});
    assert.equal(await isRunning(cloud), true);
    await cloud.fault('clear', 'unreachable');
    assert.equal(await stateOf(client), 'READY');
  });

  it('slow-create keeps the operation open until a delete', async () => {
    const cloud = await scratch.cloud();
    const client = clients.open(cloud);
    await cloud.fault('slow-create', `${ZONE}=1000`);
    const [creation] = await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode()});
    const progress = await client.checkCreateNodeProgress(creation.name ?? '');
    assert.equal(progress.done, false);
    assert.equal(await stateOf(client), 'CREATING');
    const [deletion] = await client.deleteNode({name: NODE});
    await assert.rejects(creation.promise(), /deleted during its creation/);
    await deletion.promise();
  });
});
