/** `gleaner destroy` without a control plane, and its step of Terraform. The commands of TPUs are in test/e2e/fleet-commands.test.ts. */
import assert from 'node:assert/strict';
import {delimiter} from 'node:path';
import {destroyResources, staysOf} from '../../../cli/destroy/destroy.ts';
import {type Draining, drain, fleetOf, leftIn} from '../../../cli/destroy/drain.ts';
import {type Cloud, withCloud} from '../../../client/cloud/cloud.ts';
import {openGoogle} from '../../../client/google/api.ts';
import {setQuiet} from '../../../client/text/output.ts';
import type {LocalCloud} from '../../../emulator/cloud.ts';
import {labelsOf} from '../../../shared/domain/deployment.ts';
import {runtimeOf} from '../../../shared/domain/fleet/accelerators.ts';
import {openSqliteStore} from '../../../shared/embedded/sqlite-store.ts';
import {openProviders} from '../../../shared/google/providers.ts';
import type {Store} from '../../../shared/ports/ports.ts';
import {brokenStore} from '../../support/fakes/broken-store.ts';
import {serveControl} from '../../support/fakes/control-topic.ts';
import {steppedClock} from '../../support/fakes/stepped-clock.ts';
import {FakeTerraform} from '../../support/google/fake-terraform.ts';
import {GoogleProject, PROJECT} from '../../support/google/google-project.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {Folder} from '../../support/machine/folder.ts';
import {aTpu} from '../../world/builders.ts';

const REQUEST = {
  ...{accelerator: 'v5litepod-1', provider: 'tpu-api' as const, disk_gb: null},
  ...{runtime_version: 'v2-alpha-tpuv5-lite', spot: true, metadata: {}, queue: null},
  labels: labelsOf('gleaner'),
};

describe('The end of TPUs without a control plane @full', () => {
  const scratch = new Scratch(afterEach);
  let cloud: LocalCloud;
  // A connection to a local cloud points Google's clients at it.
  const env = {...process.env};
  before(() => setQuiet(true));
  beforeEach(async () => {
    cloud = await scratch.cloud();
  });
  after(() => {
    setQuiet(false);
    process.env = env;
  });

  /** A clock that steps in place of a wait. */
  function steppingClock() {
    let now_ms = Date.now();
    return {
      now: () => now_ms,
      sleep: async (seconds: number) => {
        now_ms += seconds * 1000;
        await new Promise(resolve => setTimeout(resolve, 20));
      },
    };
  }

  const draining = (work: (given: Draining) => Promise<void>) =>
    withCloud({port: cloud.port}, async opened => {
      const {project, url: endpoint, token} = cloud;
      const api = openGoogle({endpoint, token});
      const endpoints = {tpu: endpoint, compute: endpoint};
      const tpus = openProviders(['tpu-api', 'compute-engine'], {project, endpoints, token});
      const zones = ['us-central1-a', 'us-east5-a'];
      await work({cloud: opened, api, tpus, zones, pauseTick: async () => {}, clock: steppingClock()});
    });

  it('the end of TPUs without a control plane deletes nodes and queued resources of the deployment in every zone, and no others', () =>
    draining(async given => {
      const {tpus} = given;
      await tpus.create({...REQUEST, name: 'tpu-us-central1-a-0', zone: 'us-central1-a'});
      // A zone that neither the settings nor a document names.
      await tpus.create({...REQUEST, name: 'tpu-us-west4-a-0', zone: 'us-west4-a'});
      const queue = {valid_until_at: '2099-01-01T00:00:00.000Z', request_id: crypto.randomUUID()};
      await tpus.create({...REQUEST, name: 'tpu-us-east5-a-0', zone: 'us-east5-a', queue});
      const instance = {
        accelerator: 'v6e-1',
        runtime_version: runtimeOf('v6e-1', 'compute-engine'),
        spot: true,
      };
      const [name, zone] = ['tpu-us-central1-b-0', 'us-central1-b'];
      await tpus.create({...REQUEST, ...instance, provider: 'compute-engine', name, zone});
      const foreign = {...REQUEST, labels: labelsOf('team-a'), name: 'team-a-tpu-us-central1-a-0'};
      await tpus.create({...foreign, zone: 'us-central1-a'});
      const fleet = await fleetOf(given.cloud, given.zones);
      const names = (await leftIn(given, fleet)).map(({name}) => name).sort();
      assert.deepEqual(names, ['tpu-us-central1-a-0', name, 'tpu-us-east5-a-0', 'tpu-us-west4-a-0']);
      await drain(given, fleet);
      const left = (await tpus.list()).tpus.map(({name}) => name);
      assert.deepEqual(left, ['team-a-tpu-us-central1-a-0']);
    }));

  it('the end of TPUs without a control plane stops at a zone that does not answer, because a node may be in it', () =>
    draining(async given => {
      await cloud.fault('unreachable', 'us-east5-a');
      await assert.rejects(drain(given, await fleetOf(given.cloud, given.zones)), /TPUs of us-east5-a/);
    }));

  it('the end of TPUs without a control plane skips a zone of the settings that the project cannot see', () =>
    draining(async given => {
      const absent = {...given, zones: ['us-central1-a', 'mars-north1-a']};
      await drain(absent, await fleetOf(given.cloud, absent.zones));
    }));
});

describe('What stays after a destroy', () => {
  const connection = {project: PROJECT, deployment: 'gleaner', bucket: 'b', folder: undefined};
  const stays = (settings: object) => {
    const all = staysOf({connection} as Cloud, {}, {project: PROJECT, ...settings});
    return all.map(({command}) => command).join('\n');
  };

  it('What stays after a destroy has the backups, and the secrets that the settings name, where the deployment has them', () => {
    const secret = 'projects/secrets-1/secrets/hub/versions/latest';
    const git_token_secret = 'github.com=projects/secrets-2/secrets/git';
    const notify = {format: 'slack', url_secret: 'projects/secrets-3/secrets/slack'};
    const some = stays({hf_token_secret: secret, git_token_secret, notify});
    assert.match(some, /secrets delete slack --project=secrets-3/);
    assert.match(some, /secrets delete git --project=secrets-2/);
    assert.match(some, /firestore backups list --project=my-project-123 && /);
    assert.match(some, /secrets delete hub --project=secrets-1/);
    assert.doesNotMatch(stays({backups: {daily_days: 0}}), /backups|secrets/);
  });
});

describe('The pools of a destroy', () => {
  const FLEET = {pools: ['tpu', 'tpu-old'], zones: [], seen: new Set<string>()};
  const [draining, refused] = ['tpu-us-central1-a-0', 'tpu-old-us-central1-a-0'];
  let google: GoogleProject;
  let done: string[];
  before(() => setQuiet(true));
  after(() => setQuiet(false));
  afterEach(() => google.close());

  /** Drains a fleet of two TPUs. A pool with an outcome has a record; a TPU of an emptied pool goes at the third look. */
  async function drained(outcomes: Record<string, string>): Promise<string[]> {
    done = [];
    const store: Store = openSqliteStore(':memory:');
    google = await new GoogleProject().start();
    serveControl(google, store, ({pool = ''}) => {
      done.push(`scale ${pool}`);
      return outcomes[pool];
    });
    const left = new Set([draining, refused]);
    let looks = 0;
    const tpus = {
      list: async () => {
        if (++looks === 3 && outcomes.tpu === 'applied') left.delete(draining);
        return {tpus: [...left].map(name => aTpu({name, labels: labelsOf('gleaner')})), unreachable: []};
      },
      delete: async (name: string) => {
        done.push(`delete ${name}`);
        left.delete(name);
      },
    };
    const connection = {project: PROJECT, deployment: 'gleaner', storage_endpoint: google.url};
    await drain(
      {
        cloud: {store, connection} as Cloud,
        api: openGoogle({endpoint: google.url}),
        tpus: tpus as unknown as Draining['tpus'],
        zones: [],
        pauseTick: async () => void done.push('pause the ticks'),
        clock: steppedClock(),
      },
      FLEET,
    );
    return done;
  }

  it('the pools of a destroy are all asked, and only the TPUs of a rejected one are deleted, after the others are gone', async () => {
    const steps = await drained({tpu: 'applied', 'tpu-old': 'rejected'});
    assert.deepEqual(steps, ['scale tpu', 'scale tpu-old', 'pause the ticks', `delete ${refused}`]);
  });

  it('the pools of a destroy without an answer lose their TPUs directly, after the ticks are paused', async () => {
    const steps = await drained({});
    assert.deepEqual(steps, ['scale tpu', 'pause the ticks', `delete ${draining}`, `delete ${refused}`]);
  });
});

describe('The zones of a destroy', () => {
  const settings = ['us-central1-a'];
  const fleetWith = (code: number) => {
    const store = brokenStore(
      openSqliteStore(':memory:'),
      ['query'],
      code,
      'The database gleaner does not exist',
    );
    return fleetOf({store, connection: {deployment: 'gleaner'}} as Cloud, settings);
  };
  before(() => setQuiet(true));
  after(() => setQuiet(false));

  it('the zones of a destroy are those of the settings where the database is gone', async () => {
    assert.deepEqual(await fleetWith(5), {pools: ['tpu'], zones: settings, seen: new Set()});
  });

  it('the zones of a destroy are unknown where the database does not answer, so the destroy stops', () =>
    assert.rejects(fleetWith(14), /Failed to read pools/));
});

describe('The destroy by Terraform @full', () => {
  const folder = new Folder();
  let google: GoogleProject;
  let terraform: FakeTerraform;
  const path = process.env.PATH;
  beforeEach(async () => {
    google = await new GoogleProject().start();
    google.prepare();
    terraform = await new FakeTerraform(google).start(folder.path);
    process.env.PATH = `${folder.path}${delimiter}${path}`;
  });
  afterEach(async () => {
    process.env.PATH = path;
    await terraform.close();
    await google.close();
    folder.end();
  });

  it('the destroy by Terraform has the settings and the artefacts of the last deployment', async () => {
    const settings = {project: PROJECT, region: 'us-central1', zones: ['us-central1-a'], max_budget_usd: 5};
    const artifact = {file: 'functions.zip', sha256: 'a'.repeat(64)};
    const record = {deployed_at: '2026-11-01T00:00:00.000Z', account: 'a', git_commit: null, settings};
    await google.put(
      `${PROJECT}-gleaner-terraform`,
      'gleaner/deployments/latest.json',
      JSON.stringify({...record, artifacts: {functions: artifact, bundle: artifact}}),
    );
    const file = folder.put('settings.json', JSON.stringify(settings));
    setQuiet(true);
    const api = openGoogle({endpoint: google.url, token: 'none'});
    await destroyResources({api, folder: folder.path, path: file, settings}, {});
    setQuiet(false);
    assert.match(
      terraform.calls.join('\n'),
      /init .*bucket=my-project-123-gleaner-terraform.*prefix=gleaner\nstate list\ndestroy -auto-approve/,
    );
    assert.match(terraform.variables, /"max_budget_usd":5.*"sha256":"aaaa/s);
  });
});
