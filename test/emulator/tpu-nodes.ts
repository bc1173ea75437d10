/** Nodes of a local cloud through Google's client of Cloud TPU. */

import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {v2} from '@google-cloud/tpu';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import {cloudState} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';

export const ZONE = 'us-central1-a';
export const PARENT = `projects/gleaner-local/locations/${ZONE}`;
export const NODE_ID = 'tpu-us-central1-a-0';
export const NODE = `${PARENT}/nodes/${NODE_ID}`;

/** A node whose startup script prints a line and runs until the VM stops. */
export const aNode = (script = 'echo up; sleep 1000 & wait') => ({
  acceleratorType: 'v5litepod-1',
  runtimeVersion: 'v2-alpha-tpuv5-lite',
  labels: {gleaner: 'worker'},
  metadata: {'startup-script': `#!/bin/bash\n${script}\n`, 'gleaner-worker': NODE_ID},
  schedulingConfig: {spot: true},
});

/** Clients of the clouds of one test, closed together. */
export class TpuClients {
  readonly #clients: v2.TpuClient[] = [];

  /** Closes the clients after each test. */
  constructor() {
    afterEach(async () => {
      for (const client of this.#clients.splice(0)) await client.close();
    });
  }

  open(cloud: LocalCloud): v2.TpuClient {
    const client = new v2.TpuClient({projectId: cloud.project, ...clientOptionsFor(cloud.url, cloud.token)});
    this.#clients.push(client);
    return client;
  }

  /** A client of a cloud that has one READY node, whose VM has printed a line. */
  async openWithNode(cloud: LocalCloud, script?: string): Promise<v2.TpuClient> {
    const client = this.open(cloud);
    const [operation] = await client.createNode({parent: PARENT, nodeId: NODE_ID, node: aNode(script)});
    await operation.promise();
    await until('the VM prints a line', () => consoleOf(cloud) !== '');
    return client;
  }
}

/** Output of a boot of the node `NODE`. */
export function consoleOf(cloud: LocalCloud, boot = 1): string {
  const file = join(cloud.dir, 'logs', `${NODE_ID}-${boot}.log`);
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

export async function stateOf(client: v2.TpuClient) {
  return (await client.getNode({name: NODE}))[0].state;
}

/** Names of the VMs that are on. */
export async function runningVms(cloud: LocalCloud): Promise<string[]> {
  const {tpus} = await cloudState<{
    tpus: {vms: {name: string; pid: number | null}[]}[];
  }>(cloud);
  return tpus.flatMap(({vms}) => vms.filter(({pid}) => pid !== null).map(({name}) => name));
}

/** True while the VM of the first node is on. */
export async function isRunning(cloud: LocalCloud): Promise<boolean> {
  return (await runningVms(cloud)).includes(NODE_ID);
}
