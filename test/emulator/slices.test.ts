import assert from 'node:assert/strict';
import {existsSync, readdirSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import type {v2} from '@google-cloud/tpu';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {accountsOf} from '../../emulator/http/identity.ts';
import {Scratch} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {aNode, NODE, NODE_ID, PARENT, runningVms, stateOf, TpuClients, ZONE} from './tpu-nodes.ts';

const [FIRST, SECOND] = [`${NODE_ID}-w-0`, `${NODE_ID}-w-1`];

/** Counts its boots on its disk, prints values of its metadata, its environment, and each notice. */
const SCRIPT = `echo boot >> boots
get() { curl -s -H Metadata-Flavor:Google "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/$1"; }
trap 'echo notified' TERM
echo number $(get attributes/agent-worker-number) endpoints $(get attributes/worker-network-endpoints)
echo ip $(get network-interfaces/0/ip) name $(get name)
echo flags $XLA_FLAGS
echo boots $(wc -l < boots) server $GCE_METADATA_HOST
while true; do sleep 0.1; done`;

describe('A slice of two hosts', () => {
  const clients = new TpuClients();
  const scratch = new Scratch(afterEach);
  let cloud: LocalCloud;
  let client: v2.TpuClient;
  beforeEach(async () => {
    cloud = await scratch.cloud({preemption_notice_ms: 600_000});
    client = clients.open(cloud);
  });

  const printed = (vm: string, boot = 1) => {
    const file = join(cloud.dir, 'logs', `${vm}-${boot}.log`);
    return existsSync(file) ? readFileSync(file, 'utf8') : '';
  };
  const prints = (vm: string, mark: RegExp, boot?: number) =>
    until(`${vm} prints ${mark}`, () => mark.exec(printed(vm, boot)) ?? undefined);
  const make = async (nodeId = NODE_ID) => {
    const {worker: email} = accountsOf(cloud.project, 'gleaner');
    const node = {...aNode(SCRIPT), acceleratorType: 'v4-16', serviceAccount: {email}};
    const [creation] = await client.createNode({
      parent: PARENT,
      nodeId,
      node: {...node, runtimeVersion: 'tpu-ubuntu2204-base'},
    });
    await creation.promise();
  };

  it('has a VM for each host, with numbers and addresses of its own', async () => {
    await make();
    await make('other');
    const [{networkEndpoints}] = await client.getNode({name: NODE});
    const addresses = networkEndpoints?.map(({ipAddress}) => String(ipAddress)) ?? [];
    assert.match(addresses.join(' '), /^(127\.\d+\.\d+)\.1 \1\.2$/);
    const endpoints = addresses.map(address => `unknown:unknown:${address}`).join(',');
    for (const [host, vm] of [FIRST, SECOND].entries()) {
      await prints(vm, /boots 1/);
      const flag = '--xla_force_host_platform_device_count=4';
      const lines = [
        `number ${host} endpoints ${endpoints}`,
        `ip ${addresses[host]} name ${vm}`,
        `flags ${flag}`,
      ];
      assert.equal(printed(vm).split('\n').slice(0, 3).join('\n'), lines.join('\n'));
    }
    const [other] = await client.getNode({name: `${PARENT}/nodes/other`});
    assert.ok(!addresses.includes(String(other.networkEndpoints?.[0]?.ipAddress)));
  });

  it('stays READY while a host is dead, notified or restarted, and loses all hosts at a preemption', async () => {
    await make();
    await prints(SECOND, /boots 1/);
    assert.match(await cloud.fault('restart', SECOND), /restarted the VM/);
    await prints(SECOND, /boots 2/, 2);
    await cloud.fault('preempt-with-notice', SECOND);
    await prints(SECOND, /notified/, 2);
    assert.doesNotMatch(printed(FIRST), /notified/);
    await cloud.fault('dead', SECOND);
    assert.deepEqual([await runningVms(cloud), await stateOf(client)], [[FIRST], 'READY']);
    await assert.rejects(
      cloud.fault('preempt', SECOND),
      /takes all hosts of a TPU: name tpu-us-central1-a-0/,
    );
    await assert.rejects(
      cloud.fault('dead', `${NODE_ID}-w-2`),
      /Unknown TPU .* the cloud has .*-w-0, .*-w-1/,
    );
    await cloud.fault('preempt', NODE_ID);
    assert.deepEqual([await runningVms(cloud), await stateOf(client)], [[], 'PREEMPTED']);
    await (await client.deleteNode({name: NODE}))[0].promise();
    assert.deepEqual(readdirSync(join(cloud.dir, 'vms')), []);
  });

  it('boots its last host late under slow-boot, and not at all after a delete', async () => {
    await cloud.fault('slow-boot', `${ZONE}=0.2`);
    await make();
    await prints(SECOND, /boots 1/);
    await cloud.fault('slow-boot', `${ZONE}=600`);
    await make('late');
    await prints('late-w-0', /boots 1/);
    assert.deepEqual(await runningVms(cloud), ['late-w-0', FIRST, SECOND]);
    await (await client.deleteNode({name: `${PARENT}/nodes/late`}))[0].promise();
    assert.equal(printed('late-w-1'), '');
  });

  it('has a host whose requests wait while it is cut off', async () => {
    await make();
    const audience = `${cloud.url}/functions/worker-api`;
    const ask = async (vm: string, signal?: AbortSignal) => {
      const [, server] = await prints(vm, /server (\S+)/);
      const path = 'computeMetadata/v1/instance/service-accounts/default/identity';
      const query = new URLSearchParams({audience, format: 'full'});
      const headers = {'metadata-flavor': 'Google'};
      const token = await (await fetch(`http://${server}/${path}?${query}`, {headers})).text();
      const request = {method: 'POST', headers: {authorization: `Bearer ${token}`}};
      return (await fetch(audience, {...request, ...(signal && {signal})})).status;
    };
    await cloud.fault('cut', `${SECOND}=600`);
    await assert.rejects(ask(SECOND, AbortSignal.timeout(500)), {name: 'TimeoutError'});
    assert.equal(await ask(FIRST), 404, 'this cloud has no functions');
    await cloud.fault('cut', `${SECOND}=0.01`);
    assert.equal(await ask(SECOND), 404);
  });
});
