import assert from 'node:assert/strict';
import {urlWithToken} from '../../emulator/http/guard.ts';
import {openInstances} from '../../shared/google/instances.ts';
import {joinProviders} from '../../shared/google/providers.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {TpuRequest} from '../../shared/ports/ports.ts';
import {cloudState} from '../support/machine/a-cloud.ts';
import {until} from '../support/machine/until.ts';
import {useTpus} from './tpu-cases.ts';
import {aRequest, COMPUTE_ENGINE, itKeepsTheContract} from './tpus-contract.ts';

const [NAME, ZONE] = ['tpu-us-central1-a-0', 'us-central1-a'];
const anInstance = (changes: Partial<TpuRequest> = {}) => aRequest({...COMPUTE_ENGINE.request, ...changes});

describe('Tpus: instances of Compute Engine', () => {
  const use = useTpus(openInstances);
  const {cloud, client, listUntil} = use;
  itKeepsTheContract({...use, provider: COMPUTE_ENGINE});

  const at = () =>
    `${urlWithToken(cloud().url, cloud().token)}/compute/v1/projects/${cloud().project}/zones/${ZONE}/instances`;
  // biome-ignore lint/suspicious/noExplicitAny: JSON of the API: each test reads another part
  const instance = async (name: string): Promise<any> => (await fetch(`${at()}/${name}`)).json();

  /** Process group of the VM of an instance; null while it is off. */
  const pidOf = async (name: string) => {
    const {tpus: shown} = await cloudState<{
      tpus: {name: string; vms: {pid: number | null}[]}[];
    }>(cloud());
    return shown.find(each => each.name === name)?.vms[0]?.pid ?? null;
  };

  it('a Spot instance has every property of its request and of the settings', async () => {
    const {project, url, token} = cloud();
    const service_account = 'worker@p.iam.gserviceaccount.com';
    const network = {network: 'workers', subnetwork: 'workers-subnet', external_ips: true};
    const image = 'projects/mine/global/images/family/workers';
    await openInstances({project, endpoint: url, token, service_account, network}).create(
      anInstance({accelerator: 'v5p-8', runtime_version: image, disk_gb: 300}),
    );
    const made = await instance(NAME);
    assert.match(made.machineType, /zones\/us-central1-a\/machineTypes\/ct5p-hightpu-4t$/);
    assert.equal(made.disks[0].diskSizeGb, '300');
    assert.equal(made.serviceAccounts[0].email, service_account);
    assert.match(made.networkInterfaces[0].network, /global\/networks\/workers$/);
    assert.match(made.networkInterfaces[0].subnetwork, /regions\/us-central1\/subnetworks\/workers-subnet$/);
    assert.equal(made.networkInterfaces[0].accessConfigs.length, 1);
    const attributes = made.metadata.items.map(({key}: {key: string}) => key);
    assert.ok(
      [...Object.keys(aRequest().metadata), 'agent-worker-number'].every(key => attributes.includes(key)),
    );
    assert.deepEqual(made.scheduling, {
      ...{provisioningModel: 'SPOT', onHostMaintenance: 'TERMINATE', automaticRestart: false},
      ...{instanceTerminationAction: 'DELETE', maxRunDuration: {seconds: '691200'}},
      preemptionNoticeDuration: {seconds: '120'},
    });
  });

  it('an instance on demand has the leash, and a flex-start instance a week', async () => {
    await client().create(anInstance({spot: false}));
    const valid_until_at = new Date(Date.now() + 9_000_000).toISOString();
    const queue = {valid_until_at, request_id: '00000000-0000-4000-8000-000000000001'};
    const flex = anInstance({name: 'tpu-us-central1-a-1', spot: false, queue});
    assert.equal(await client().create(flex), 'started');
    assert.equal(await client().create(flex), 'started', 'a repeated request is one request');
    const {scheduling} = await instance(NAME);
    assert.deepEqual(
      [scheduling.provisioningModel, scheduling.maxRunDuration.seconds],
      ['STANDARD', '691200'],
    );
    const {scheduling: later} = await instance('tpu-us-central1-a-1');
    assert.deepEqual([later.provisioningModel, later.maxRunDuration.seconds], ['FLEX_START', '604800']);
  });

  it('a preempted instance stops, and is gone', async () => {
    await client().create(anInstance());
    await listUntil(([one]) => one?.state === 'RUNNING');
    await cloud().fault('preempt', NAME);
    await listUntil(found => found.length === 0);
    assert.equal(await client().get(NAME, ZONE), undefined);
  });

  it('an instance that is not of Gleaner is not listed, and refuses the name', async () => {
    await client().create(anInstance({labels: {owner: 'another'}}));
    assert.deepEqual(await client().list(), {tpus: [], unreachable: []});
    await assert.rejects(client().create(anInstance()), {kind: 'bad-request', message: /not Gleaner's/});
    await client().delete(NAME, ZONE);
    await until('the instance is gone', async () => (await client().get(NAME, ZONE)) === undefined);
  });

  it('a late failure leaves no instance', async () => {
    await cloud().fault('late-failure', `${ZONE}=3`);
    assert.equal(await client().create(anInstance()), 'started');
    await listUntil(found => found.length === 0);
  });

  it('an instance boots late under the fault slow-boot', async () => {
    const other = {name: 'tpu-us-east5-a-0', zone: 'us-east5-a'};
    await cloud().fault('slow-boot', `${ZONE}=600`);
    await client().create(anInstance());
    await listUntil(([one]) => one?.state === 'RUNNING');
    await client().create(anInstance(other));
    await until('the other one boots', async () => (await pidOf(other.name)) !== null);
    assert.equal(await pidOf(NAME), null);
  });

  it('both providers are one list, and a name is found and deleted with either', async () => {
    const {project, url, token} = cloud();
    const both = joinProviders(
      new Map([
        ['tpu-api', openTpus({project, endpoint: url, token})],
        ['compute-engine', client()],
      ]),
    );
    await both.create(aRequest({name: 'tpu-us-central1-a-1'}));
    await both.create(anInstance());
    const names = ['tpu-us-central1-a-1', NAME];
    assert.deepEqual((await both.list()).tpus.map(({name}) => name).sort(), names.toSorted());
    for (const name of names) {
      assert.equal((await both.get(name, ZONE))?.name, name);
      assert.equal(await both.delete(name, ZONE), 'started');
    }
    await until('both lists are empty', async () => (await both.list()).tpus.length === 0);
    await assert.rejects(
      joinProviders(
        new Map([
          ['tpu-api', client()],
          ['compute-engine', {...client(), list: () => Promise.reject(new Error('silent'))}],
        ]),
      ).list(),
      /silent/,
    );
  });

  const REFUSED: [name: string, changes: object, why: RegExp][] = [
    ['that could move', {scheduling: {onHostMaintenance: 'MIGRATE'}}, /onHostMaintenance/],
    ['without a network', {networkInterfaces: []}, /networkInterfaces/],
    [
      'with another disk',
      {
        disks: [
          {
            boot: true,
            initializeParams: {
              sourceImage: 'projects/p/global/images/i',
              diskType: `zones/${ZONE}/diskTypes/pd-balanced`,
            },
          },
        ],
      },
      /not compatible/,
    ],
    ['of another zone', {machineType: 'zones/us-east5-b/machineTypes/ct6e-standard-1t'}, /machineType/],
    ['with an unknown field', {machine: 'x'}, /Unknown name/],
    [
      'that restarts on spot',
      {scheduling: {onHostMaintenance: 'TERMINATE', provisioningModel: 'SPOT'}},
      /automaticRestart/,
    ],
    [
      'without an end of its flex-start',
      {
        scheduling: {
          onHostMaintenance: 'TERMINATE',
          provisioningModel: 'FLEX_START',
          automaticRestart: false,
        },
      },
      /reservationAffinity/,
    ],
  ];

  for (const [name, changes, why] of REFUSED)
    it(`the local cloud refuses an instance ${name}`, async () => {
      const body = {
        name: NAME,
        machineType: `zones/${ZONE}/machineTypes/ct6e-standard-1t`,
        disks: [
          {
            boot: true,
            initializeParams: {
              sourceImage: 'projects/p/global/images/i',
              diskType: `zones/${ZONE}/diskTypes/hyperdisk-balanced`,
            },
          },
        ],
        networkInterfaces: [{network: 'global/networks/default'}],
        scheduling: {onHostMaintenance: 'TERMINATE'},
        ...changes,
      };
      const headers = {authorization: `Bearer ${cloud().token}`};
      const answer = await fetch(at(), {method: 'POST', headers, body: JSON.stringify(body)});
      assert.equal(answer.status, 400);
      assert.match(await answer.text(), why);
    });
});
