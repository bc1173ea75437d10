/** Two deployments in the project of one local cloud, with real workers, while events and nodes are lost. */
import assert from 'node:assert/strict';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {setTimeout as sleep} from 'node:timers/promises';
import {packWorker} from '../../cli/bundle.ts';
import {pointClientsAt} from '../../cli/local-deployment.ts';
import {CACHE, JAX_CACHE, UV_CACHE, workerPython} from '../../cli/python.ts';
import {provideTinyModel, tinyModel} from '../../cli/tiny-model.ts';
import {type LocalCloud, startLocalCloud} from '../../emulator/cloud.ts';
import {labelsOf} from '../../shared/domain/deployment.ts';
import {openSqliteStore} from '../../shared/embedded/sqlite-store.ts';
import {openBus} from '../../shared/google/bus.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {openTpus} from '../../shared/google/tpus.ts';
import type {Document, Objects, Store, Tpus} from '../../shared/ports.ts';
import {E2E_MS, SPEC, texts} from './home.ts';

const ZONE = 'us-central1-a';
const WAIT_MS = 400_000;
const DEPLOYMENTS = [
  {name: 'gleaner', bucket: 'gleaner-local', file: 'state.db', node: `tpu-${ZONE}-0`},
  {name: 'team-a', bucket: 'team-a-local', file: 'state-team-a.db', node: `team-a-tpu-${ZONE}-0`},
] as const;
type Deployment = (typeof DEPLOYMENTS)[number];

/** Limits of a cloud whose VMs boot in seconds. */
const QUICK = {
  ...{GLEANER_HEARTBEAT_S: '1', GLEANER_POLL_S: '2', GLEANER_LEASE_S: '15', GLEANER_SILENT_S: '30'},
  ...{GLEANER_CREATE_S: '60', GLEANER_BOOT_S: '60', GLEANER_SETUP_S: '900', GLEANER_REPAIR_S: '60'},
  ...{GLEANER_ASK_AGAIN_S: '5', GLEANER_CREATE_WAIT_S: '5', GLEANER_SHORT_LIFE_S: '1', GLEANER_AUDIT_S: '3'},
  ...{GLEANER_CREATES_PER_HOUR: '1000', GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '1'},
};

describe('two deployments in one project', function () {
  this.timeout(E2E_MS);
  let dir: string;
  let cloud: LocalCloud;
  let tpus: Tpus;
  const stores = new Map<Deployment, Store>();
  const buckets = new Map<Deployment, Objects>();

  const storeOf = (deployment: Deployment) => stores.get(deployment) ?? assert.fail();
  const bucketOf = (deployment: Deployment) => buckets.get(deployment) ?? assert.fail();

  before(async () => {
    await workerPython(() => {});
    const worker = await packWorker();
    dir = mkdtempSync(join(tmpdir(), 'gleaner-two-'));
    cloud = await startLocalCloud({
      ...{
        dir,
        port: 0,
        tick_interval_ms: 500,
        deployments: DEPLOYMENTS.map(({name, bucket}) => ({name, bucket})),
      },
      function_host: {
        env: (_, {bucket}) => ({
          ...{...QUICK, GLEANER_BUNDLE: worker.sha256, GLEANER_DEFAULT_MODEL: tinyModel(bucket)},
        }),
      },
      vm_env: {
        ...{GLEANER_PLATFORM: 'cpu', GLEANER_ENVIRONMENTS: CACHE, UV_CACHE_DIR: UV_CACHE},
        JAX_COMPILATION_CACHE_DIR: JAX_CACHE,
      },
    });
    pointClientsAt(cloud);
    const {project, url: endpoint, token} = cloud;
    tpus = openTpus({project, endpoint, token});
    for (const deployment of DEPLOYMENTS) {
      const {bucket} = deployment;
      const objects = openObjects({project, bucket, endpoint, token});
      buckets.set(deployment, objects);
      stores.set(deployment, openSqliteStore(join(dir, deployment.file)));
      await objects.create(`bundles/${worker.sha256}.tar.gz`, worker.bytes);
      await provideTinyModel(objects, join(CACHE, 'tiny-model', worker.sha256.slice(0, 16)), () => {});
    }
  });
  after(async () => {
    for (const store of stores.values()) await store.close();
    await cloud?.close();
    if (dir) rmSync(dir, {recursive: true, force: true});
  });

  async function until(what: string, isReached: () => Promise<boolean>): Promise<void> {
    for (const end = Date.now() + WAIT_MS; ; await sleep(200)) {
      if (await isReached().catch(() => false)) return;
      if (Date.now() > end) assert.fail(`${what} did not come about: ${JSON.stringify(await tpus.list())}`);
    }
  }

  const textsIn = async (deployment: Deployment): Promise<string[]> =>
    (await storeOf(deployment).query('events')).map(({data}) => String((data as Document).text));

  it('complete their runs beside each other, and neither touches a node of the other', async () => {
    const [ours, theirs] = DEPLOYMENTS;
    for (const topic of ['tick', 'team-a-tick', 'tpu', 'team-a-tpu']) {
      await cloud.fault('drop', `${topic}=0.2`);
      await cloud.fault('double', `${topic}=0.2`);
    }
    for (const deployment of DEPLOYMENTS) {
      await bucketOf(deployment).create('datasets/my-run/run.json', Buffer.from(SPEC));
      for (const stream of ['000', '001'])
        await bucketOf(deployment).create(
          `datasets/my-run/stream_${stream}.jsonl`,
          Buffer.from(texts(400, `${deployment.name}${stream}`)),
        );
    }
    const isWorking = async (deployment: Deployment) =>
      (await storeOf(deployment).get(`workers/${deployment.node}`))?.phase === 'working';
    const loseNode = async () => {
      await until('work of the first deployment', () => isWorking(ours));
      await cloud.fault('preempt', ours.node);
    };
    // A node of the other deployment that fits no slot, and a rebuild, which deletes every node without a document.
    const meddle = async () => {
      await until('work of the second deployment', () => isWorking(theirs));
      const machine = {accelerator: 'v5litepod-1', runtime_version: 'v2-alpha-tpuv5-lite', spot: true};
      const stray = {name: 'a-stray', zone: ZONE, labels: labelsOf(theirs.name), metadata: {}, queue: null};
      // The next tick may delete the node before the create has ended.
      await tpus
        .create({...stray, ...machine})
        .catch(error => assert.match(String(error), /deleted during its creation/));
      const bus = openBus({project: cloud.project, token: cloud.token, deployment: theirs.name});
      const id = await bus.publish('control', {action: 'rebuild'});
      const isApplied = async () => (await storeOf(theirs).get(`control/${id}`))?.outcome === 'applied';
      await until('the rebuild', isApplied);
    };
    await Promise.all([loseNode(), meddle()]);

    for (const deployment of DEPLOYMENTS)
      await until(`the end of the run of ${deployment.name}`, async () => {
        const run = await storeOf(deployment).get('runs/my-run');
        return run?.status === 'completed';
      });
    await cloud.fault('clear', 'all');
    await until('the end of every node', async () => (await tpus.list()).tpus.length === 0);
    for (const deployment of DEPLOYMENTS)
      await until(`the bill of ${deployment.name}`, async () => {
        const worker = await storeOf(deployment).get(`workers/${deployment.node}`);
        return worker?.phase === 'gone';
      });

    for (const [deployment, other] of [DEPLOYMENTS, [theirs, ours]] as const) {
      const store = storeOf(deployment);
      assert.deepEqual(
        (await store.query('workers')).map(({id}) => id),
        [deployment.node],
      );
      const attempts = await store.query(`workers/${deployment.node}/attempts`);
      const causes = attempts.map(({data}) => String(data.cause));
      const expected = deployment === ours ? /preempted|not needed/ : /not needed/;
      assert.ok(causes.length > 0 && causes.every(cause => expected.test(cause)), causes.join());
      const said = await textsIn(deployment);
      const isAboutOther = new RegExp(`(?<![\\w-])${other.node}`);
      assert.deepEqual(
        said.filter(text => isAboutOther.test(text)),
        [],
      );
      const strays = said.filter(text => text.startsWith('a-stray'));
      assert.equal(strays.length > 0, deployment === theirs, strays.join());
      const shards = await bucketOf(deployment).list('activations/my-run/tpu_0/shard_');
      assert.ok(shards.length > 1 && shards.at(-1)?.metadata.final === 'true');
    }
  });
});
