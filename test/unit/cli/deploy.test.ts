/** `gleaner deploy` with a program in place of terraform, which records its calls and fails as a test asks. */
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {createHash} from 'node:crypto';
import {once} from 'node:events';
import {existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {delimiter, join} from 'node:path';
import {text} from 'node:stream/consumers';
import {fileURLToPath} from 'node:url';
import {destroyResources} from '../../../cli/destroy/destroy.ts';
import {openGoogle} from '../../../client/google/api.ts';
import {ApiError} from '../../../emulator/http/errors.ts';
import {DEPLOYMENT, FakeTerraform} from '../../support/google/fake-terraform.ts';
import {GoogleProject, PROJECT} from '../../support/google/google-project.ts';
import {putBuiltEnvironment} from '../../support/machine/built-environment.ts';
import {alone, gleaner} from '../../support/machine/command.ts';
import {deployAtOnce as runAtOnce} from '../../support/machine/deploy-at-once.ts';
import {Folder} from '../../support/machine/folder.ts';
import {GLEANER} from '../../support/machine/process.ts';
import {until} from '../../support/machine/until.ts';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const STATE = `${PROJECT}-gleaner-terraform`;

const SETTINGS = {
  project: PROJECT,
  region: 'us-central1',
  zones: ['us-central1-a'],
  max_budget_usd: 50,
};

/** The texts of Google's APIs for a step that came too early. */
const NO_AGENT = 'Service account service-1@gcp-sa-pubsub.iam.gserviceaccount.com does not exist.';
const EVENTARC =
  'Error creating Trigger: googleapi: Error 400: Invalid resource state for "": Permission denied while using the Eventarc Service Agent. If you recently started to use Eventarc, it may take a few minutes before all necessary permissions are propagated to the Service Agent.';

describe('gleaner deploy @full', () => {
  let folder: string;
  let google: GoogleProject;
  let terraform: FakeTerraform;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'gleaner-deploy-'));
    google = await new GoogleProject().start();
    terraform = await new FakeTerraform(google).start(folder);
    mkdirSync(join(folder, 'tmp'));
    await putBuiltEnvironment(join(folder, 'cache'));
    writeFileSync(join(folder, 'gleaner.tfvars.json'), JSON.stringify(SETTINGS));
  });
  afterEach(async () => {
    await terraform.close();
    await google.close();
    rmSync(folder, {recursive: true});
  });

  const variables = (env: Record<string, string>): Record<string, string> => ({
    PATH: `${folder}${delimiter}${process.env.PATH}`,
    TMPDIR: join(folder, 'tmp'),
    XDG_CACHE_HOME: join(folder, 'cache'),
    GLEANER_GOOGLE_APIS: `${google.url}/{host}`,
    ...env,
  });
  const deploy = (args: string[], env: Record<string, string> = {}) =>
    gleaner(['deploy', ...args], {cwd: folder, env: variables(env)});
  /** The same with a clock that steps in place of a wait, and a lock file in the folder. */
  const deployAtOnce = (args: string[], env: Record<string, string> = {}) =>
    alone(() => runAtOnce(join(folder, 'lock.hcl'), args), {cwd: folder, env: variables(env)});

  const destroyAtOnce = () =>
    alone(
      async () => {
        const api = openGoogle();
        const path = join(folder, 'gleaner.tfvars.json');
        await destroyResources({api, folder, path, settings: SETTINGS}, {});
      },
      {cwd: folder, env: variables({})},
    );

  it('gleaner deploy prepares the project, plans, applies the plan that it showed with its own key, prints the outputs, and keeps no plan', async () => {
    const {code, stdout, stderr} = await deployAtOnce(['--yes', '--json']);
    assert.equal(code, 0, stderr);
    assert.deepEqual(terraform.verbs, ['init', 'plan', 'show', 'apply', 'output']);
    const calls = terraform.calls.join('\n');
    assert.match(
      calls,
      /-backend-config=bucket=my-project-123-gleaner-terraform -backend-config=prefix=gleaner/,
    );
    assert.match(
      calls,
      /plan .*-var-file=\S+gleaner\.tfvars\.json -var-file=\S+artifacts\.auto\.tfvars\.json/,
    );
    assert.deepEqual(JSON.parse(stdout).outputs.bucket, 'my-project-123-gleaner');
    const keyOf = (verb: string) => terraform.tickets[terraform.verbs.indexOf(verb)];
    assert.match(keyOf('plan') ?? '', /^[0-9a-f]{64}$/);
    assert.equal(keyOf('apply'), keyOf('plan'));
    assert.deepEqual(readdirSync(join(folder, 'tmp')), []);
    assert.match(
      stderr,
      /The bucket is in us-central1, and us-east5-b in another region: runs need allow_cross_region, .* \$0\.02/,
    );
    assert.match(
      stderr,
      /this creates 23, changes 0, replaces 0, and destroys 0\n1 of them are fields of Firestore/,
    );
    assert.match(
      stderr,
      /Each v6e-8 counts 8 against the quotas TPUV6EPreemptiblePerProjectPerZoneForTPUAPI and/,
    );
    for (const api of ['cloudresourcemanager', 'eventarc', 'pubsub', 'run', 'tpu'])
      assert.ok(google.apis.has(api), api);
    assert.deepEqual([...google.identities].sort(), [
      'artifactregistry',
      'cloudbuild',
      'cloudfunctions',
      'cloudscheduler',
      'compute',
      'eventarc',
      'pubsub',
      'run',
      'tpu',
    ]);
    assert.deepEqual(google.resources.get(`b/${STATE}`)?.versioning, {enabled: true});
  });

  it('gleaner deploy changes nothing in a prepared project but the accounts, and turns on versions of an older state bucket @long', async () => {
    assert.equal((await deployAtOnce(['--yes'])).code, 0);
    google.resources.set(`b/${STATE}`, {name: STATE});
    google.calls.length = 0;
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    assert.deepEqual(google.resources.get(`b/${STATE}`)?.versioning, {enabled: true});
    const changes = google.calls.filter(call => /^(POST|PATCH) \/(v1|storage)/.test(call));
    assert.deepEqual(
      changes.filter(call => !/generateServiceIdentity|getEffectiveOrgPolicy/.test(call)),
      [`PATCH /storage/v1/b/${STATE}`],
    );
  });

  it('gleaner deploy goes on where a service has no account to make @long', async () => {
    google.prepare();
    const path = `/v1beta1/projects/${PROJECT}/services/cloudbuild.googleapis.com:generateServiceIdentity`;
    google.answers.set(`POST ${path}`, new ApiError(400, 'The service has no identity'));
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /cloudbuild has no account to make: .*The service has no identity/);
    assert.equal(google.identities.size, 8);
  });

  it('gleaner deploy prints the most that an hour can cost in the dearest zone, and changes nothing', async () => {
    const {stdout} = await deploy(['--plan', '--json']);
    const {mocked, resources, most_an_hour} = JSON.parse(stdout);
    assert.equal(mocked, false);
    assert.deepEqual(
      resources,
      DEPLOYMENT.map(({address}) => address),
    );
    assert.equal(most_an_hour.dearest_zone, 'us-east5-b');
    assert.ok(Math.abs(most_an_hour.tpus_usd - 3 * 8 * 1.215) < 1e-9);
    assert.deepEqual(terraform.verbs, ['init', 'plan', 'show']);
    assert.deepEqual(
      google.calls.filter(call => !call.startsWith('GET')),
      [],
    );
  });

  it('gleaner deploy repeats until the agents of Google are ready, and says what is left', async () => {
    terraform.failing = {verb: 'apply', text: EVENTARC, times: 3};
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    const again = ['plan', 'show', 'apply'];
    assert.deepEqual(terraform.verbs, [
      'init',
      'plan',
      'show',
      'apply',
      ...again,
      ...again,
      ...again,
      'output',
    ]);
    assert.match(stderr, /Google has not finished an earlier step: .*Eventarc Service Agent/);
    assert.match(
      stderr,
      /Repeating in 30 s, for 12 minutes at most[\s\S]*Repeating in 60 s[\s\S]*Repeating in 120 s/,
    );
    assert.match(
      stderr,
      /23 resources are left: google_eventarc_trigger\.document\["on-job"\], google_firestore_field.* and 15 more/,
    );
  });

  it('gleaner deploy ends the repeats after twelve minutes, with the last error @long', async () => {
    terraform.failing = {verb: 'apply', text: NO_AGENT, times: 99};
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /Failed to apply: .*does not exist.*not finished for 12 minutes: run the command again later/,
    );
    assert.equal(terraform.verbs.filter(verb => verb === 'apply').length, 8);
  });

  it('gleaner deploy repeats no other failure, and says in one line what to do', async () => {
    const text = "Error 403: Permission 'pubsub.topics.create' denied on resource";
    terraform.failing = {verb: 'apply', text, times: 1};
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /gleaner: Failed to apply: .*; grant the calling account a role with pubsub\.topics\.create/,
    );
    assert.deepEqual(terraform.verbs, ['init', 'plan', 'show', 'apply']);
  });

  it('gleaner deploy keeps the settings, the digests, the account and the hashes of the provider beside the state', async () => {
    const lock = `provider "registry.terraform.io/hashicorp/google" {\n  version     = "7.45.0"\n}\n`;
    writeFileSync(join(folder, 'lock.hcl'), lock);
    google.makeBucket(STATE);
    await google.put(STATE, 'gleaner/terraform.lock.hcl', lock.replace('7.45.0', '7.44.0'));
    const deployed = await deployAtOnce(['--yes']);
    assert.equal(deployed.code, 0, deployed.stderr);
    assert.deepEqual(await google.names(STATE), [
      'gleaner/deployments/2026-11-25T10:00:04.000Z.json',
      'gleaner/deployments/latest.json',
      'gleaner/terraform.lock.hcl',
    ]);
    const record = JSON.parse((await google.text(STATE, 'gleaner/deployments/latest.json')) ?? '');
    assert.deepEqual(record.settings, SETTINGS);
    assert.equal(record.account, 'local');
    assert.match(record.git_commit, /^[0-9a-f]{40}/);
    const built = JSON.parse(readFileSync(join(ROOT, 'dist/artifacts.auto.tfvars.json'), 'utf8'));
    assert.deepEqual(record.artifacts, built.artifacts);
    // Another laptop: no settings, no lock file.
    rmSync(join(folder, 'lock.hcl'));
    rmSync(join(folder, 'gleaner.tfvars.json'));
    const {code, stderr} = await deployAtOnce(['--yes'], {GLEANER_CLOUD: PROJECT});
    assert.equal(code, 0, stderr);
    assert.match(
      stderr,
      /no gleaner\.tfvars\.json of .*\/gleaner here: taking the settings that local applied at 2026/,
    );
    assert.equal(readFileSync(join(folder, 'lock.hcl'), 'utf8'), lock);
  });

  it('gleaner deploy leaves a lock file of another version of the provider in the state @long', async () => {
    google.makeBucket(STATE);
    await google.put(STATE, 'gleaner/terraform.lock.hcl', 'provider "x" {\n  version = "7.44.0"\n}\n');
    assert.equal((await deployAtOnce(['--yes'])).code, 0);
    assert.equal(existsSync(join(folder, 'lock.hcl')), false);
  });

  describe('with the artefacts of an earlier deployment', () => {
    const sha = (text: string) => createHash('sha256').update(text).digest('hex');
    const [zip, tar, env] = [sha('zip'), sha('tar'), sha('env')];
    const artifacts = {
      functions: {file: `functions-${zip}.zip`, sha256: zip},
      bundle: {file: `bundle-${tar}.tar.gz`, sha256: tar},
      environment: {file: `environment-${env}.tar.gz`, sha256: env},
    };
    const record = {
      deployed_at: '2026-11-01T00:00:00.000Z',
      account: 'a',
      git_commit: null,
      settings: SETTINGS,
    };
    beforeEach(async () => {
      google.makeBucket(STATE);
      google.makeBucket(`${PROJECT}-gleaner`);
      const text = JSON.stringify({...record, artifacts});
      await google.put(STATE, 'gleaner/deployments/2026-11-01T00:00:00.000Z.json', text);
      await google.put(`${PROJECT}-gleaner`, `functions/${zip}.zip`, 'zip');
      await google.put(`${PROJECT}-gleaner`, `bundles/${tar}.tar.gz`, 'tar');
      await google.put(`${PROJECT}-gleaner`, `environments/${env}.tar.gz`, 'env');
    });

    it('gleaner deploy with the artefacts of an earlier deployment goes back to them', async () => {
      const {code, stderr} = await deployAtOnce(['--yes', '--artifacts', zip.slice(0, 8)]);
      assert.equal(code, 0, stderr);
      const latest = JSON.parse((await google.text(STATE, 'gleaner/deployments/latest.json')) ?? '');
      assert.deepEqual(latest.artifacts, artifacts);
      assert.equal(readFileSync(join(ROOT, 'dist', artifacts.functions.file), 'utf8'), 'zip');
      assert.equal(readFileSync(join(ROOT, 'dist', artifacts.environment.file), 'utf8'), 'env');
      for (const {file} of Object.values(artifacts)) rmSync(join(ROOT, 'dist', file));
    });

    it('gleaner deploy with the artefacts of an earlier deployment refuses a damaged artefact, a digest that no deployment has, and a file outside of dist/', async () => {
      await google.put(`${PROJECT}-gleaner`, `bundles/${tar}.tar.gz`, 'other');
      const damaged = await deployAtOnce(['--yes', '--artifacts', zip]);
      assert.match(damaged.stderr, new RegExp(`bundles/${tar}.tar.gz has sha256 ${sha('other')}`));
      const unknown = await deployAtOnce(['--yes', '--artifacts', '0'.repeat(8)]);
      assert.match(
        unknown.stderr,
        new RegExp(`No deployment of gleaner has functions 00000000…; it has .* ${zip}`),
      );
      const bundle = {file: '../out.tar.gz', sha256: tar};
      const text = JSON.stringify({...record, artifacts: {...artifacts, bundle}});
      await google.put(STATE, 'gleaner/deployments/2026-11-02T00:00:00.000Z.json', text);
      const outside = await deployAtOnce(['--yes', '--artifacts', zip]);
      assert.match(outside.stderr, /deployments\/2026-11-02.*artifacts\.bundle\.file/s);
      assert.deepEqual(terraform.calls, []);
    });
  });

  it('gleaner deploy says what mends a failure to turn on the APIs', async () => {
    const error = {
      code: 9,
      message: `Billing account for project '1' is not found. Billing must be enabled.`,
    };
    google.answers.set('GET /v1/operations/1', {name: 'operations/1', done: true, error});
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /Failed to turn on the APIs: Billing account .*; link the project to an open billing account$/m,
    );
  });

  it('gleaner deploy takes over what a destroy has kept, with its own ticket key, and nothing else', async () => {
    const deployed = await deployAtOnce(['--yes']);
    assert.equal(deployed.code, 0, deployed.stderr);
    const destroyed = await destroyAtOnce();
    assert.equal(destroyed.code, 0, destroyed.stderr);
    const kept = ['b/my-project-123-gleaner', 'databases/gleaner', 'roles/gleaner_tpu'];
    for (const name of kept)
      assert.ok(
        [...google.resources.keys()].some(key => key.endsWith(name)),
        name,
      );
    const again = await deployAtOnce(['--yes']);
    assert.equal(again.code, 0, again.stderr);
    assert.match(
      again.stderr,
      /Taking over my-project-123-gleaner\nTaking over \S+\/databases\/gleaner\nTaking over \S+\/backupSchedules\/\d+\nTaking over \S+\/roles\/gleaner_tpu\n/,
    );
    assert.ok(terraform.tickets.every(ticket => /^[0-9a-f]{64}$/.test(ticket)));
    const imports = () => terraform.verbs.filter(verb => verb === 'import').length;
    assert.equal(imports(), 4);
    assert.equal((await deployAtOnce(['--yes'])).code, 0);
    assert.equal(imports(), 4);
  });

  it('gleaner deploy refuses a resource that another program has made, and says what to do', async () => {
    google.prepare();
    const job = `projects/${PROJECT}/locations/us-central1/jobs/gleaner-tick`;
    google.resources.set(job, {name: job, state: 'ENABLED'});
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /Failed to apply: googleapi: Error 409: .*jobs\/gleaner-tick' already exists; .*or choose another `name`/,
    );
  });

  const ON_TICK = 'google_cloudfunctions2_function.function["on-tick"]';

  it('gleaner deploy replaces a function whose update has failed, though Terraform finds no change', async () => {
    assert.equal((await deployAtOnce(['--yes'])).code, 0);
    const name = `projects/${PROJECT}/locations/us-central1/functions/gleaner-on-tick`;
    const {buildConfig, ...old} = google.resources.get(name) ?? {};
    google.resources.set(name, {
      ...old,
      buildConfig: {source: {storageSource: {object: 'functions/old.zip'}}},
    });
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /gleaner-on-tick runs functions\/old\.zip, and .* is applied: replacing it/);
    assert.ok(terraform.calls.some(call => call.endsWith(`-replace=${ON_TICK}`)));
    assert.match(stderr, /this creates 0, changes 0, replaces 0, and destroys 0/);
    assert.deepEqual(google.resources.get(name)?.buildConfig, buildConfig);
    const rights = 'google_cloud_run_v2_service_iam_member.invoker["on-tick"]';
    assert.ok(terraform.state.has(rights), 'the right to call it went with the old service');
  });

  it('gleaner deploy records no deployment with a function that stays wrong', async () => {
    google.answers.set(`GET /v2/projects/${PROJECT}/locations/us-central1/functions/gleaner-on-tick`, {
      state: 'FAILED',
    });
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /gleaner-on-tick is FAILED; `gcloud functions describe gleaner-on-tick .*not recorded/,
    );
    assert.deepEqual(await google.names(STATE), []);
  });

  /** What a project forbids: `settings` and `inject` lead to an error that `says` matches. */
  const FORBIDDEN: {
    name: string;
    settings?: object;
    inject: (google: GoogleProject) => unknown;
    says: RegExp;
  }[] = [
    {
      name: 'a region without Cloud Scheduler',
      settings: {region: 'us-south1'},
      inject: ({unserved}) => unserved.add('cloudscheduler us-south1'),
      says: /cloudscheduler does not serve us-south1: set `scheduler_region` to one of us-central1, us-east5$/m,
    },
    {
      name: 'a region without eventarc',
      inject: ({unserved}) => unserved.add('eventarc us-central1'),
      says: /eventarc does not serve us-central1: set `eventarc_location` to none, or take another `firestore_location`$/m,
    },
    ...['cloudfunctions', 'artifactregistry', 'firestore'].map(service => ({
      name: `a region without ${service}`,
      inject: ({unserved}: GoogleProject) => unserved.add(`${service} us-central1`),
      says: new RegExp(`${service} does not serve us-central1: set \`\\w+\` to one of us-east5`),
    })),
    {
      name: 'a region that does not exist',
      settings: {region: 'us-central9'},
      inject: () => {},
      says: /: us-central9 is no region of Google: set `region`, such as us-central1$/m,
    },
    ...['iam.disableServiceAccountCreation', 'compute.requireShieldedVm'].map(constraint => ({
      name: `the policy ${constraint}`,
      inject: ({constraints}: GoogleProject) =>
        constraints.set(`constraints/${constraint}`, {booleanPolicy: {enforced: true}}),
      says: new RegExp(`constraints/${constraint} forbids .*ask its administrator \\(roles/orgpolicy`),
    })),
    {
      name: 'the policy gcp.restrictServiceUsage',
      inject: ({constraints}) =>
        constraints.set('constraints/gcp.restrictServiceUsage', {
          listPolicy: {deniedValues: ['tpu.googleapis.com']},
        }),
      says: /gcp\.restrictServiceUsage forbids tpu\.googleapis\.com;/,
    },
    {
      name: 'the policy compute.trustedImageProjects',
      settings: {tpu_provider: 'compute-engine', accelerator: 'v6e-8'},
      inject: ({constraints}) =>
        constraints.set('constraints/compute.trustedImageProjects', {
          listPolicy: {allowedValues: ['projects/cos-cloud']},
        }),
      says: /trustedImageProjects forbids projects\/ubuntu-os-accelerator-images;/,
    },
  ];

  for (const {name, settings = {}, inject, says} of FORBIDDEN)
    it(`gleaner deploy finds before its first plan: ${name}`, async () => {
      google.prepare();
      inject(google);
      writeFileSync(join(folder, 'gleaner.tfvars.json'), JSON.stringify({...SETTINGS, ...settings}));
      const {code, stderr} = await deployAtOnce(['--yes']);
      assert.equal(code, 1);
      assert.match(stderr, says);
      assert.deepEqual(terraform.verbs, []);
    });

  it('gleaner deploy goes on where the database, and with it the trigger, is in another region', async () => {
    google.prepare();
    google.unserved.add('eventarc us-south1').add('firestore us-south1').add('cloudfunctions us-east5');
    const places = {region: 'us-south1', firestore_location: 'us-central1'};
    writeFileSync(join(folder, 'gleaner.tfvars.json'), JSON.stringify({...SETTINGS, ...places}));
    const {stderr} = await deployAtOnce(['--yes']);
    assert.doesNotMatch(stderr, /does not serve/);
    assert.ok(terraform.verbs.includes('apply'));
  });

  it('gleaner deploy goes on for an account that may not ask for policies, and says so', async () => {
    google.prepare();
    const refusal = new ApiError(403, 'The caller does not have permission');
    google.answers.set(`POST /v1/projects/${PROJECT}:getEffectiveOrgPolicy`, refusal);
    const {code, stderr, stdout} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /Not checked: .*getEffectiveOrgPolicy: The caller does not have permission/);
    assert.match(stdout, /^The deployment gleaner is in my-project-123\. Its commands:\n {2}start +gcloud/);
  });

  it('gleaner deploy goes on where a policy names organizations, and says which settings it may forbid', async () => {
    google.prepare();
    google.apis.add('orgpolicy');
    google.constraints.set('constraints/iam.allowedPolicyMemberDomains', {
      listPolicy: {allowedValues: ['C0xxxx']},
    });
    google.constraints.set('iam.managed.allowedPolicyMembers', {
      rules: [
        {enforce: true, parameters: {allowedPrincipalSets: ['//cloudresourcemanager/organizations/1']}},
      ],
    });
    google.constraints.set('constraints/gcp.restrictServiceUsage', {
      listPolicy: {allowedValues: ['tpu.googleapis.com']},
    });
    google.constraints.set('constraints/compute.restrictCloudNATUsage', {
      listPolicy: {allowedValues: [`under:projects/${PROJECT}`]},
    });
    const members = {operators: ['user:a@example.com'], users: ['user:b@example.com']};
    writeFileSync(join(folder, 'gleaner.tfvars.json'), JSON.stringify({...SETTINGS, ...members}));
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    assert.match(
      stderr,
      /gcp\.restrictServiceUsage may forbid [\s\S]*restrictCloudNATUsage may forbid Cloud NAT/,
    );
    for (const constraint of ['iam.allowedPolicyMemberDomains', 'iam.managed.allowedPolicyMembers'])
      assert.ok(
        stderr.includes(
          `constraints/${constraint} may forbid members of other organizations in \`operators\`, \`users\`; `,
        ),
        stderr,
      );
  });

  it('gleaner deploy mocks the plan of a project without a bucket for the state @long', async () => {
    const text =
      "Failed to get existing workspaces: querying Cloud Storage failed: storage: bucket doesn't exist";
    terraform.failing = {verb: 'init', text, times: 1};
    const {stderr} = await deploy(['--plan', '--json']);
    assert.match(
      stderr,
      /mocked, because the bucket of the state does not exist yet, which a deployment makes/,
    );
  });

  it('gleaner deploy ends Terraform in order after Ctrl-C, keeps no plan, and exits with 130', async () => {
    const child = spawn(process.execPath, [GLEANER, 'deploy', '--yes'], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {...process.env, ...variables({SLOW_VERB: 'apply'})},
    });
    const [said, ended] = [text(child.stderr), once(child, 'exit')];
    await until('Terraform is at work', () => existsSync(join(folder, 'slow')));
    child.kill('SIGINT');
    const [[code], stderr] = [await ended, await said];
    assert.equal(code, 130, stderr);
    assert.match(stderr, /Interrupted: run the command again/);
    assert.equal(readFileSync(join(folder, 'interrupted'), 'utf8'), 'once\n');
    assert.deepEqual(readdirSync(join(folder, 'tmp')), []);
  });

  it('gleaner deploy applies nothing without a terminal and without --yes', async () => {
    const {code, stderr} = await deploy([]);
    assert.equal(code, 1);
    assert.match(stderr, /add --yes/);
    assert.deepEqual(terraform.calls, []);
  });

  for (const [name, text, expected] of [
    ['a missing file', undefined, /copy terraform\/example\.tfvars\.json/],
    ['text that is not JSON', 'project = "x"', /gleaner\.tfvars\.json is not JSON/],
    ['a file without a project', '{}', /project is missing: the id of a Google Cloud project/],
    [
      'an unknown setting',
      JSON.stringify({...SETTINGS, max_worker: 2}),
      /"max_worker" is not a setting; the settings are .*max_workers/,
    ],
    [
      'a file without a ceiling of dollars',
      '{"project": "my-project-123", "region": "us-central1", "zones": ["us-central1-a"]}',
      /max_budget_usd is missing/,
    ],
    [
      'a list that is a text',
      JSON.stringify({...SETTINGS, zones: 'us-central1-a'}),
      /zones must be a list, and is "us-central1-a"/,
    ],
    [
      'a region that is a zone',
      JSON.stringify({...SETTINGS, region: 'us-central1-a'}),
      /region must be a region such as us-central1: a zone/,
    ],
    [
      'a zone that is a region',
      JSON.stringify({...SETTINGS, zones: ['us-central1']}),
      /zones must be zones such as us-central1-a/,
    ],
    [
      'a budget in words',
      JSON.stringify({...SETTINGS, max_budget_usd: 'ten'}),
      /max_budget_usd must be a number/,
    ],
    [
      'a runtime version of another accelerator',
      JSON.stringify({...SETTINGS, accelerator: 'v6e-8', runtime_version: 'v2-alpha-tpuv5-lite'}),
      /"v2-alpha-tpuv5-lite" is not for v6e-8: leave it out, or use v2-alpha-tpuv6e/,
    ],
    [
      'a name that leaves the folder',
      JSON.stringify({...SETTINGS, name: '../../x'}),
      /name.*4 to 15 lower-case/,
    ],
  ] as const)
    it(`gleaner deploy refuses settings in one line: ${name}`, async () => {
      if (text === undefined) rmSync(join(folder, 'gleaner.tfvars.json'));
      else writeFileSync(join(folder, 'gleaner.tfvars.json'), text);
      const {code, stderr} = await deploy(['--yes']);
      assert.equal(code, 1);
      assert.match(stderr, expected);
    });
});

/** Here, because one file runs at a time: this build changes `dist/`, from which a deployment takes its environment. */
describe('gleaner build without an environment @full', () => {
  const folder = new Folder(after);

  it('gleaner build without an environment leaves it out, and says how to build it', async () => {
    const env = {XDG_CACHE_HOME: folder.path};
    const {stdout} = await gleaner(['build'], {env});
    assert.match(stdout, /^environment +not built: a deployment needs `gleaner build --environment`$/m);
    const answer = await gleaner(['build', '--json'], {env});
    assert.ok(!('environment' in JSON.parse(answer.stdout)));
  });
});
