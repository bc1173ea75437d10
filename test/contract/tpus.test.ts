import assert from 'node:assert/strict';
import {urlWithToken} from '../../emulator/http/guard.ts';
import {composeDeps} from '../../shared/compose.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {TpuRequest} from '../../shared/ports/ports.ts';
import {aConfig} from '../world/builders.ts';
import {useTpus} from './tpu-cases.ts';
import {aRequest, itKeepsTheContract} from './tpus-contract.ts';

describe('Tpus: nodes of Cloud TPU', () => {
  const use = useTpus();
  const {cloud, client, listUntil} = use;
  itKeepsTheContract(use);

  it('a node has every property of its request and of the settings', async () => {
    const {project, url, token} = cloud();
    const service_account = 'worker@p.iam.gserviceaccount.com';
    const network = {network: 'workers', subnetwork: 'workers-subnet', external_ips: true};
    await openTpus({project, endpoint: url, token, service_account, network}).create(aRequest());
    await client().create(aRequest({name: 'tpu-us-central1-a-1', spot: false}));
    const nodes = `${urlWithToken(url, token)}/v2/projects/${project}/locations/us-central1-a/nodes`;
    const spot = (await (await fetch(`${nodes}/tpu-us-central1-a-0`)).json()) as Record<string, unknown>;
    assert.equal(spot.acceleratorType, 'v5litepod-1');
    assert.equal(spot.runtimeVersion, 'v2-alpha-tpuv5-lite');
    assert.deepEqual(spot.metadata, aRequest().metadata);
    assert.deepEqual(spot.schedulingConfig, {spot: true});
    const {external_ips: enableExternalIps, ...names} = network;
    assert.deepEqual(spot.networkConfig, {...names, enableExternalIps});
    assert.equal((spot.serviceAccount as Record<string, unknown>).email, service_account);
    const onDemand = (await (await fetch(`${nodes}/tpu-us-central1-a-1`)).json()) as Record<string, unknown>;
    assert.notDeepEqual(onDemand.schedulingConfig, {spot: true});
    assert.notEqual((onDemand.networkConfig as Record<string, unknown>).enableExternalIps, true);
  });

  it('a node has the service account and the network of the configuration', async () => {
    const {project, url, token} = cloud();
    const account = 'worker@p.iam.gserviceaccount.com';
    const nodes = `${urlWithToken(url, token)}/v2/projects/${project}/locations/us-central1-a/nodes`;
    const set = {GLEANER_PROJECT: project, GLEANER_TPU_ENDPOINT: url, GLEANER_LOCAL_TOKEN: token};
    const names = {
      'tpu-us-central1-a-0': {GLEANER_WORKER_SERVICE_ACCOUNT: account, GLEANER_SUBNETWORK: 'workers'},
      'tpu-us-central1-a-1': {},
    };
    const accounts: unknown[] = [];
    const subnetworks: unknown[] = [];
    for (const [name, who] of Object.entries(names)) {
      await composeDeps(aConfig({...set, ...who})).tpus.create(aRequest({name}));
      const node = (await (await fetch(`${nodes}/${name}`)).json()) as {
        serviceAccount?: {email?: string};
        networkConfig: {subnetwork?: string};
      };
      accounts.push(node.serviceAccount?.email);
      subnetworks.push(node.networkConfig.subnetwork);
    }
    assert.equal(accounts[0], account);
    assert.notEqual(accounts[1], account);
    assert.equal(subnetworks[0], 'workers');
    assert.notEqual(subnetworks[1], 'workers');
  });

  it('a node with an endless create stays CREATING, and can be deleted', async () => {
    await cloud().fault('endless-create', 'us-central1-a');
    assert.equal(await client().create(aRequest()), 'started');
    assert.equal((await client().list()).tpus[0]?.state, 'CREATING');
    assert.equal(await client().delete('tpu-us-central1-a-0', 'us-central1-a'), 'started');
    await listUntil(found => found.length === 0);
  });

  it('a node with a late failure is started, and later missing', async () => {
    await cloud().fault('late-failure', 'us-central1-a=3');
    assert.equal(await client().create(aRequest()), 'started');
    assert.equal((await client().list()).tpus[0]?.state, 'CREATING');
    await listUntil(found => found.length === 0);
  });

  const REFUSED: {name: string; changes: Partial<TpuRequest>; kind: string}[] = [
    {name: 'an unknown type', changes: {accelerator: 'v99-1'}, kind: 'bad-request'},
    {name: 'a zone that the project may not use', changes: {zone: 'moon-east1-a'}, kind: 'quota'},
  ];

  for (const {name, changes, kind} of REFUSED)
    it(`a create that meets ${name} is refused as ${kind}`, async () => {
      const request = aRequest(changes);
      await assert.rejects(client().create(request), {
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
