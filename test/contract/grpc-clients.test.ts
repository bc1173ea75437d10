/** The adapter of Cloud TPU over gRPC, as on Google Cloud. The local cloud speaks HTTP. */
import assert from 'node:assert/strict';
import {v2} from '@google-cloud/tpu';
import {openTpus} from '../../shared/google/tpus.ts';
import type {Tpus} from '../../shared/ports/ports.ts';
import {type Answers, type GrpcCloud, refuse, serveGrpc} from './grpc-server.ts';
import {aRequest} from './tpus-contract.ts';

const ZONE = 'projects/p/locations/us-central1-a';
const NAME = 'tpu-us-central1-a-0';
const RUNNING = {name: `${ZONE}/operations/1`, done: false};
const STOCK_OUT = 'There is no more capacity in the zone "us-central1-a"; you can try in another zone';
const QUOTA = "Quota limit 'TPUV5sPreemptible' has been exceeded. Limit: 16 in region us-central1.";
const NO_ACT_AS =
  "Permission 'iam.serviceAccounts.actAs' denied on service account w@p.iam.gserviceaccount.com";

describe('Cloud TPU over gRPC', () => {
  const answers: Answers = {};
  let cloud: GrpcCloud;
  let tpus: Tpus;
  let client: InstanceType<typeof v2.TpuClient>;

  before(async () => {
    // Without this variable the clients search for a metadata server.
    process.env.METADATA_SERVER_DETECTION = 'none';
    const services = ['google.cloud.tpu.v2.Tpu', 'google.longrunning.Operations'];
    cloud = await serveGrpc('@google-cloud/tpu/build/protos/protos.json', services, answers);
  });
  after(() => cloud.close());
  beforeEach(() => {
    for (const method of Object.keys(answers)) delete answers[method];
    client = new v2.TpuClient(cloud.options);
    const network = {network: 'workers', subnetwork: 'workers', external_ips: false};
    tpus = openTpus({project: 'p', client, service_account: 'w@p.iam.gserviceaccount.com', network});
  });
  afterEach(() => client.close());

  it('a create arrives with every property of the request and of the settings', async () => {
    const requests: {parent: string; nodeId: string; node: Record<string, unknown>}[] = [];
    answers.CreateNode = request => {
      requests.push(request);
      return RUNNING;
    };
    answers.GetOperation = () => RUNNING;
    assert.equal(await tpus.create(aRequest()), 'started');
    const {parent, nodeId, node = {}} = requests[0] ?? {};
    assert.deepEqual([requests.length, parent, nodeId], [1, ZONE, NAME]);
    const {labels, metadata, accelerator, runtime_version} = aRequest();
    assert.deepEqual([node.acceleratorType, node.runtimeVersion], [accelerator, runtime_version]);
    assert.deepEqual([node.labels, node.metadata], [labels, metadata]);
    const {network, subnetwork, enableExternalIps} = node.networkConfig as Record<string, unknown>;
    assert.deepEqual([network, subnetwork, enableExternalIps], ['workers', 'workers', false]);
    assert.equal((node.serviceAccount as {email: string}).email, 'w@p.iam.gserviceaccount.com');
    assert.equal((node.schedulingConfig as {spot: boolean}).spot, true);
  });

  it('a create of an existing node answers that it exists', async () => {
    answers.CreateNode = () => refuse('ALREADY_EXISTS', `Resource '${ZONE}/nodes/${NAME}' already exists`);
    assert.equal(await tpus.create(aRequest()), 'exists');
  });

  const failed = (code: number, message: string): Answers => ({
    CreateNode: () => RUNNING,
    GetOperation: () => ({...RUNNING, done: true, error: {code, message}}),
  });
  const refused: {what: string; given: Answers; kind: string; says: RegExp}[] = [
    {
      what: 'a stock-out in the answer',
      given: {CreateNode: () => refuse('RESOURCE_EXHAUSTED', STOCK_OUT)},
      kind: 'no-capacity',
      says: /no more capacity/,
    },
    {what: 'a stock-out in the operation', given: failed(8, STOCK_OUT), kind: 'no-capacity', says: /no more/},
    {
      what: 'a quota in the operation',
      given: failed(8, QUOTA),
      kind: 'quota',
      says: /counts against TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI/,
    },
    {
      what: 'a quota in the answer',
      given: {CreateNode: () => refuse('RESOURCE_EXHAUSTED', QUOTA)},
      kind: 'quota',
      says: /ask for more of this quota/,
    },
    {
      what: "a missing right to act as the workers' account",
      given: {CreateNode: () => refuse('PERMISSION_DENIED', NO_ACT_AS)},
      kind: 'permission',
      says: /roles\/iam\.serviceAccountUser on w@p\.iam\.gserviceaccount\.com/,
    },
  ];
  for (const {what, given, kind, says} of refused)
    it(`a create that meets ${what} is refused as ${kind}, and the error says what to do`, async () => {
      Object.assign(answers, given);
      await assert.rejects(tpus.create(aRequest()), {
        name: 'TpuError',
        kind,
        zone: 'us-central1-a',
        message: says,
      });
    });

  it('a list has both pages, the names of known states, and the zones without an answer', async () => {
    const node = (name: string, state: string | number) => ({
      name: `${ZONE}/nodes/${name}`,
      ...{state, health: 'HEALTHY', createTime: {seconds: 1_800_000_000, nanos: 5e6}},
    });
    answers.ListNodes = ({pageToken}) =>
      pageToken === ''
        ? {nodes: [node(NAME, 'READY')], nextPageToken: '2'}
        : {nodes: [node('tpu-us-central1-a-1', 99)], unreachable: ['projects/p/locations/us-east5-b']};
    const queued = {
      name: `${ZONE}/queuedResources/tpu-us-central1-a-2`,
      state: {state: 'FAILED', stateInitiator: 'SERVICE', failedData: {error: {code: 8, message: QUOTA}}},
    };
    answers.ListQueuedResources = () => ({queuedResources: [queued]});
    const {tpus: found, unreachable} = await tpus.list();
    assert.deepEqual(unreachable, ['us-east5-b']);
    assert.deepEqual(
      found.map(({name, zone, state}) => [name, zone, state]),
      [
        [NAME, 'us-central1-a', 'READY'],
        ['tpu-us-central1-a-1', 'us-central1-a', 'STATE_UNSPECIFIED'],
        ['tpu-us-central1-a-2', 'us-central1-a', null],
      ],
    );
    assert.equal(found[0]?.created_at, '2027-01-15T08:00:00.005Z');
    const {state, error} = found[2]?.queued ?? {};
    assert.deepEqual([state, error?.kind], ['FAILED', 'quota']);
  });

  it('a list is read again after a passing error', async () => {
    let calls = 0;
    answers.ListNodes = () => (calls++ === 0 ? refuse('UNAVAILABLE', 'try again') : {});
    answers.ListQueuedResources = () => ({});
    assert.deepEqual(await tpus.list(), {tpus: [], unreachable: []});
    assert.equal(calls, 2);
  });

  it('a delete deletes the node where no queued resource has its name', async () => {
    const deleted: string[] = [];
    answers.DeleteQueuedResource = () => refuse('NOT_FOUND', 'not found');
    answers.DeleteNode = ({name}) => {
      deleted.push(name);
      return RUNNING;
    };
    assert.equal(await tpus.delete(NAME, 'us-central1-a'), 'started');
    assert.deepEqual(deleted, [`${ZONE}/nodes/${NAME}`]);
    answers.DeleteNode = () => refuse('NOT_FOUND', 'not found');
    assert.equal(await tpus.delete(NAME, 'us-central1-a'), 'absent');
  });
});
