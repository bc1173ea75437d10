import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {composeDeps} from '../../../../shared/compose.ts';
import {ConfigError, loadConfig, requireWorkerApi} from '../../../../shared/contracts/settings/config.ts';
import {ENVIRONMENT} from '../../../world/builders.ts';

const bad: {name: string; set: Record<string, string | undefined>}[] = [
  {name: 'GLEANER_PROJECT', set: {GLEANER_PROJECT: undefined}},
  {name: 'GLEANER_BUCKET', set: {GLEANER_BUCKET: ''}},
  ...['', 'x', 'Team', '7up', 'team-', 'team_a', 'a-name-too-longs', 'team\n'].map(name => ({
    name: 'GLEANER_DEPLOYMENT',
    set: {GLEANER_DEPLOYMENT: name, GLEANER_STORE: 'firestore:x'},
  })),
  {name: 'GLEANER_STORE', set: {GLEANER_DEPLOYMENT: 'team-a'}},
  {name: 'GLEANER_BUCKET', set: {GLEANER_BUCKET: 'gs://my-bucket'}},
  {name: 'GLEANER_LOGS_BUCKET', set: {GLEANER_LOGS_BUCKET: 'my-logs/'}},
  {name: 'GLEANER_STORE', set: {GLEANER_STORE: 'postgres'}},
  {name: 'GLEANER_STORE', set: {GLEANER_STORE: 'sqlite:'}},
  {name: 'GLEANER_WORKER_API', set: {GLEANER_WORKER_API: 'not a url'}},
  {name: 'GLEANER_WORKER_API', set: {GLEANER_WORKER_API: ''}},
  {name: 'GLEANER_WORKER_API', set: {GLEANER_WORKER_API: 'http://worker-api.example'}},
  {name: 'GLEANER_WORKER_API', set: {GLEANER_WORKER_API: 'ftp://127.0.0.1/worker-api'}},
  {name: 'GLEANER_BUNDLE', set: {GLEANER_BUNDLE: 'main'}},
  {name: 'GLEANER_SPOT', set: {GLEANER_SPOT: 'yes'}},
  {name: 'GLEANER_WORKERS_PER_ZONE', set: {GLEANER_WORKERS_PER_ZONE: '0'}},
  {name: 'GLEANER_WORKERS_PER_ZONE', set: {GLEANER_WORKERS_PER_ZONE: '1.5'}},
  {name: 'GLEANER_LEASE_S', set: {GLEANER_LEASE_S: 'soon'}},
  {name: 'GLEANER_SILENT_S', set: {GLEANER_SILENT_S: ''}},
  {name: 'GLEANER_LEASE_S', set: {GLEANER_HEARTBEAT_S: '130'}},
  {name: 'GLEANER_SILENT_S', set: {GLEANER_SILENT_S: '239'}},
  {name: 'GLEANER_POLL_S', set: {GLEANER_POLL_S: '301'}},
  {name: 'GLEANER_MAX_WORKERS', set: {GLEANER_MAX_WORKERS: '0'}},
  {name: 'GLEANER_ZONES', set: {GLEANER_WORKERS_PER_ZONE: '101'}},
  {name: 'GLEANER_MAX_BUDGET_USD', set: {GLEANER_MAX_BUDGET_USD: '0'}},
  {name: 'GLEANER_ALLOWED_ZONES', set: {GLEANER_ALLOWED_ZONES: 'us-central1'}},
  {name: 'GLEANER_ZONES', set: {GLEANER_ALLOWED_ZONES: 'us-east1-c'}},
  {name: 'GLEANER_MODEL_SOURCES', set: {GLEANER_MODEL_SOURCES: 's3://models/'}},
  {name: 'GLEANER_MODEL_SOURCES', set: {GLEANER_MODEL_SOURCES: 'gs://models'}},
  {name: 'GLEANER_MODEL_SOURCES', set: {GLEANER_MODEL_SOURCES: 'hub,folder'}},
  {name: 'GLEANER_DEFAULT_MODEL', set: {GLEANER_DEFAULT_MODEL: '/models/tiny'}},
  {name: 'GLEANER_BOOT_S', set: {GLEANER_BOOT_S: '-1'}},
  {name: 'GLEANER_HF_ENDPOINT', set: {GLEANER_HF_ENDPOINT: ''}},
  {name: 'GLEANER_HF_ENDPOINT', set: {GLEANER_HF_ENDPOINT: 'huggingface.co'}},
  {name: 'GLEANER_HF_ENDPOINT', set: {GLEANER_HF_ENDPOINT: 'http://mirror.example'}},
  {name: 'GLEANER_HF_ENDPOINT', set: {GLEANER_HF_ENDPOINT: 'http://127.0.0.1.example'}},
  {name: 'GLEANER_HF_ENDPOINT', set: {GLEANER_HF_ENDPOINT: 'https://user:password@mirror.example'}},
  {name: 'GLEANER_HF_ENDPOINT', set: {GLEANER_HF_ENDPOINT: 'https://mirror.example?token=x'}},
  {name: 'GLEANER_HF_TOKEN_SECRET', set: {GLEANER_HF_TOKEN_SECRET: 'hf_TheTokenItself'}},
  {name: 'GLEANER_HF_TOKEN_SECRET', set: {GLEANER_HF_TOKEN_SECRET: 'projects/p/secrets/s/versions/1/x'}},
  {name: 'GLEANER_HF_TOKEN_SECRET', set: {GLEANER_HF_TOKEN_SECRET: 'projects/p/secrets/../s'}},
  {name: 'GLEANER_GIT_TOKEN_SECRET', set: {GLEANER_GIT_TOKEN_SECRET: 'ghp_TheTokenItself'}},
  {name: 'GLEANER_JOB_SECRETS', set: {GLEANER_JOB_SECRETS: 'wandb=TheKeyItself'}},
  {name: 'GLEANER_GIT_TOKEN_SECRET', set: {GLEANER_GIT_TOKEN_SECRET: 'projects/p/secrets/git'}},
  {name: 'GLEANER_GIT_TOKEN_SECRET', set: {GLEANER_GIT_TOKEN_SECRET: 'a@github.com=projects/p/secrets/git'}},
  {name: 'GLEANER_NOTIFY', set: {GLEANER_NOTIFY: 'xml'}},
  {name: 'GLEANER_NOTIFY_URL', set: {GLEANER_NOTIFY_URL: 'http://127.0.0.1:9000/'}},
  {name: 'GLEANER_NOTIFY_KEY', set: {GLEANER_NOTIFY_KEY: 'k'.repeat(23)}},
  {name: 'GLEANER_JOB_EGRESS', set: {GLEANER_JOB_EGRESS: 'all'}},
  {name: 'GLEANER_WORKER_SERVICE_ACCOUNT', set: {GLEANER_WORKER_SERVICE_ACCOUNT: 'worker'}},
  {name: 'GLEANER_WORKER_SERVICE_ACCOUNT', set: {GLEANER_WORKER_SERVICE_ACCOUNT: 'me@example.com'}},
  {name: 'GLEANER_NETWORK', set: {GLEANER_NETWORK: 'My network'}},
  {name: 'GLEANER_NETWORK', set: {GLEANER_NETWORK: 'projects/p/regions/us-east1/subnetworks/workers'}},
  {name: 'GLEANER_SUBNETWORK', set: {GLEANER_SUBNETWORK: 'projects/p/global/networks/workers'}},
  {name: 'GLEANER_SUBNETWORK', set: {GLEANER_SUBNETWORK: 'workers/'}},
  {name: 'GLEANER_EXTERNAL_IPS', set: {GLEANER_EXTERNAL_IPS: 'no'}},
  {name: 'GLEANER_CONTROL_SERVICE_ACCOUNT', set: {GLEANER_CONTROL_SERVICE_ACCOUNT: 'control'}},
  {name: 'GLEANER_TICKET_KEY', set: {GLEANER_TICKET_KEY: 'k'.repeat(31)}},
  {name: 'GLEANER_TICKET_KEY', set: {GLEANER_TICKET_KEY: `${'k'.repeat(31)} k`}},
  {name: 'GLEANER_OIDC_CERTS', set: {GLEANER_OIDC_CERTS: 'https://certs.example/v1'}},
  {name: 'GLEANER_OIDC_CERTS', set: {GLEANER_OIDC_CERTS: 'http://127.0.0.1.example/v1'}},
  {name: 'GLEANER_DEPLOYMENT', set: {GLEANER_DEPLOYMENT: 'Gleaner'}},
  {name: 'GLEANER_ZONES', set: {GLEANER_ZONES: 'us-central1'}},
  {name: 'GLEANER_ZONES', set: {GLEANER_ZONES: 'us-central1-a,'}},
  {name: 'GLEANER_ZONES', set: {GLEANER_ZONES: 'us-central1-a,us-central1-a'}},
];

/** The startup script and the agent read the same cases (test/worker/agent/test_addresses.py). */
const addresses: {address: string; is_safe: boolean}[] = JSON.parse(
  readFileSync(new URL('../../../fixtures/addresses.json', import.meta.url), 'utf8'),
);

describe('configuration', () => {
  for (const {name, set} of bad)
    it(`refuses ${JSON.stringify(set)} with an error that names ${name}`, () => {
      assert.throws(
        () => loadConfig({...ENVIRONMENT, ...set}),
        error => error instanceof ConfigError && error.message.includes(`  ${name}: `),
      );
    });

  it('names every missing or invalid variable in one error', () => {
    assert.throws(
      () => loadConfig({GLEANER_SPOT: 'maybe', GLEANER_LEASE_S: 'soon'}),
      error => {
        assert.ok(error instanceof ConfigError);
        const names = [...error.message.matchAll(/^ {2}(\w+): ./gm)].map(match => match[1]);
        assert.deepEqual(names.sort(), [
          'GLEANER_BUCKET',
          'GLEANER_BUNDLE',
          'GLEANER_LEASE_S',
          'GLEANER_PROJECT',
          'GLEANER_SPOT',
        ]);
        return true;
      },
    );
  });

  it('repeats no token in the error that was given as the name of a secret', () => {
    assert.throws(
      () => loadConfig({...ENVIRONMENT, GLEANER_HF_TOKEN_SECRET: 'hf_TheTokenItself'}),
      error => error instanceof ConfigError && !error.message.includes('hf_TheTokenItself'),
    );
  });

  it('puts the hub, the host of private code and the network of jobs, and no name of a secret, into the metadata of workers', () => {
    const bare = loadConfig(ENVIRONMENT);
    assert.deepEqual(bare.worker_metadata, {});
    assert.equal(bare.identity.metadata_host, 'metadata.google.internal');
    const config = loadConfig({
      ...ENVIRONMENT,
      GLEANER_HF_ENDPOINT: 'http://127.0.0.1:8080',
      GLEANER_HF_TOKEN_SECRET: 'projects/a-project/secrets/hub-token/versions/7',
      GLEANER_GIT_TOKEN_SECRET: 'github.com=projects/a-project/secrets/git',
      GLEANER_JOB_SECRETS: 'wandb=projects/p/secrets/w,hf=projects/p/secrets/h/versions/2',
      GLEANER_JOB_EGRESS: 'none',
      GLEANER_WORKER_SERVICE_ACCOUNT: 'worker@a-project.iam.gserviceaccount.com',
    });
    assert.deepEqual(config.worker_metadata, {
      'gleaner-hf-endpoint': 'http://127.0.0.1:8080',
      'gleaner-git-host': 'github.com',
      'gleaner-job-egress': 'none',
    });
    assert.deepEqual(config.secrets, {
      hub: 'projects/a-project/secrets/hub-token/versions/7',
      git: 'projects/a-project/secrets/git',
      jobs: {wandb: 'projects/p/secrets/w', hf: 'projects/p/secrets/h/versions/2'},
    });
    assert.equal(config.identity.worker_account, 'worker@a-project.iam.gserviceaccount.com');
  });

  it('has a default for every optional variable', () => {
    const config = loadConfig(ENVIRONMENT);
    assert.deepEqual(config.pool.zones, ['us-central1-a']);
    assert.equal(config.pool.spot, true);
    assert.equal(config.store, 'firestore');
    assert.deepEqual(config.endpoints, {
      ...{storage: undefined, tpu: undefined, compute: undefined, billing: undefined, sts: undefined},
      secrets: undefined,
    });
  });

  it('gives nodes no external address unless it is asked for, and takes names or paths of a network', () => {
    assert.deepEqual(loadConfig(ENVIRONMENT).network, {external_ips: false});
    const [network, subnetwork] = [
      'projects/host-project/global/networks/shared',
      'projects/host-project/regions/us-central1/subnetworks/workers',
    ];
    const given = {GLEANER_NETWORK: network, GLEANER_SUBNETWORK: subnetwork, GLEANER_EXTERNAL_IPS: 'true'};
    assert.deepEqual(loadConfig({...ENVIRONMENT, ...given}).network, {
      network,
      subnetwork,
      external_ips: true,
    });
    const named = loadConfig({...ENVIRONMENT, GLEANER_NETWORK: 'workers', GLEANER_SUBNETWORK: 'workers'});
    assert.deepEqual(named.network, {network: 'workers', subnetwork: 'workers', external_ips: false});
  });

  it('has a default lease that outlives three heartbeats and ends before a worker is silent', () => {
    const {heartbeat_s, lease_s, limits} = loadConfig(ENVIRONMENT);
    assert.ok(lease_s >= 3 * heartbeat_s && limits.silent_s > lease_s && limits.setup_s > limits.boot_s);
  });

  for (const {address, is_safe} of addresses)
    it(`${is_safe ? 'accepts' : 'refuses'} ${JSON.stringify(address)} as the address of worker-api`, () => {
      const load = () => loadConfig({...ENVIRONMENT, GLEANER_WORKER_API: address}).worker_api;
      if (is_safe) assert.equal(load(), address);
      else assert.throws(load, /GLEANER_WORKER_API/);
    });

  it('demands the address of worker-api only from the function that needs it', () => {
    const config = loadConfig({...ENVIRONMENT, GLEANER_WORKER_API: undefined});
    assert.throws(
      () => requireWorkerApi(config, 'on-tpu'),
      error => error instanceof ConfigError && /^GLEANER_WORKER_API .* on-tpu needs it/.test(error.message),
    );
    assert.equal(requireWorkerApi(loadConfig(ENVIRONMENT), 'on-tpu'), ENVIRONMENT.GLEANER_WORKER_API);
  });

  it('composes every port without the address of worker-api, and refuses only the ping', async () => {
    const {ping} = composeDeps(loadConfig({...ENVIRONMENT, GLEANER_WORKER_API: undefined}));
    await assert.rejects(ping(), /^ConfigError: GLEANER_WORKER_API is not set, and on-tick needs it/);
  });

  it('gives the pool of every deployment but the default one the name of its deployment', () => {
    const pools = ['gleaner', 'team-a'].map(GLEANER_DEPLOYMENT => {
      const {deployment, pool} = loadConfig({
        ...ENVIRONMENT,
        GLEANER_DEPLOYMENT,
        GLEANER_STORE: 'firestore:x',
      });
      return [deployment, pool.pool];
    });
    assert.deepEqual(pools, [
      ['gleaner', 'tpu'],
      ['team-a', 'team-a-tpu'],
    ]);
    assert.equal(loadConfig(ENVIRONMENT).deployment, 'gleaner');
  });

  it('gives the pool the runtime version of its accelerator, and keeps a given version', () => {
    const poolOf = (set: object) => loadConfig({...ENVIRONMENT, ...set}).pool.runtime_version;
    assert.equal(poolOf({GLEANER_ACCELERATOR: 'v6e-8'}), 'v2-alpha-tpuv6e');
    assert.equal(
      poolOf({GLEANER_ACCELERATOR: 'v6e-8', GLEANER_RUNTIME_VERSION: 'v6e-ubuntu-2404'}),
      'v6e-ubuntu-2404',
    );
  });

  it('accepts blanks between zones', () => {
    const {zones} = loadConfig({...ENVIRONMENT, GLEANER_ZONES: 'us-central1-a, europe-west4-b'}).pool;
    assert.deepEqual(zones, ['us-central1-a', 'europe-west4-b']);
  });
});
