/** `gleaner deploy` with a program in place of terraform, which records its calls and fails as a test asks. */
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {createHash} from 'node:crypto';
import {once} from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import {tmpdir} from 'node:os';
import {delimiter, join} from 'node:path';
import {text} from 'node:stream/consumers';
import {fileURLToPath} from 'node:url';
import {ApiError} from '../../../emulator/http/errors.ts';
import {GoogleProject, PROJECT} from '../../support/fakes/google-project.ts';
import {putBuiltEnvironment} from '../../support/machine/built-environment.ts';
import {alone, gleaner} from '../../support/machine/command.ts';
import {deployAtOnce as runAtOnce} from '../../support/machine/deploy-at-once.ts';
import {Folder} from '../../support/machine/folder.ts';
import {until} from '../../support/machine/until.ts';

const MAIN = fileURLToPath(new URL('../../../cli/main.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const STATE = `${PROJECT}-gleaner-terraform`;

const SETTINGS = {
  project: PROJECT,
  region: 'us-central1',
  zones: ['us-central1-a'],
  max_budget_usd: 50,
};

/** A plan with one function, as `terraform show -json` prints it. */
const PLAN = JSON.stringify({
  resource_changes: [
    {address: 'google_project_service.service["run"]', mode: 'managed', change: {actions: ['no-op']}},
    {address: 'google_eventarc_trigger.document["on-job"]', mode: 'managed', change: {actions: ['create']}},
    {address: 'google_firestore_field.text["jobs/code"]', mode: 'managed', change: {actions: ['create']}},
  ],
  planned_values: {
    outputs: {
      ceilings: {value: {max_workers: 3, accelerator: 'v6e-8', zones: ['us-central1-a', 'us-east5-b']}},
    },
    root_module: {
      resources: [
        {
          ...{address: 'google_cloudfunctions2_function.function["on-tick"]', mode: 'managed'},
          ...{type: 'google_cloudfunctions2_function', name: 'function', index: 'on-tick'},
          values: {
            service_config: [{...{available_memory: '1Gi', available_cpu: '1', max_instance_count: 1}}],
          },
        },
        {address: 'data.google_project.project', mode: 'data', type: 'google_project', values: {}},
      ],
    },
  },
});

/** Answers by the verb. FAIL_VERB fails FAIL_TIMES times, with FAIL_TEXT; each call is a line of `calls`. */
const PROGRAM = `#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
verb=$2
printf '%s' "$TF_VAR_ticket_key" >> "$CALLS.$verb-key"
if [ "$verb" = "$FAIL_VERB" ] && [ "$(wc -l < "$CALLS.failed" 2>/dev/null || echo 0)" -lt "\${FAIL_TIMES:-1}" ]; then
  echo >> "$CALLS.failed"
  printf 'Error: %s\\n' "$FAIL_TEXT" >&2
  exit 1
fi
if [ "$verb" = "$SLOW_VERB" ]; then
  trap 'echo once >> "$CALLS.interrupted"; exit 1' INT
  touch "$CALLS.slow"
  while :; do sleep 0.1; done
fi
case $verb in
  plan) for word in "$@"; do case $word in -out=*) echo planned > "\${word#-out=}" ;; esac; done ;;
  show) cat "$PLAN_FILE" ;;
  output) echo '{"bucket":{"value":"my-project-123-gleaner"},"next_commands":{"value":{"start":"gcloud storage cp a b"}}}' ;;
esac
`;

/** The texts of Google's APIs for a step that came too early. */
const NO_AGENT = 'Service account service-1@gcp-sa-pubsub.iam.gserviceaccount.com does not exist.';
const EVENTARC =
  'Error creating Trigger: googleapi: Error 400: Invalid resource state for "": Permission denied while using the Eventarc Service Agent. If you recently started to use Eventarc, it may take a few minutes before all necessary permissions are propagated to the Service Agent.';

describe('gleaner deploy @full', () => {
  let folder: string;
  let google: GoogleProject;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'gleaner-deploy-'));
    google = await new GoogleProject().start();
    mkdirSync(join(folder, 'tmp'));
    await putBuiltEnvironment(join(folder, 'cache'));
    writeFileSync(join(folder, 'terraform'), PROGRAM);
    chmodSync(join(folder, 'terraform'), 0o755);
    writeFileSync(join(folder, 'plan.json'), PLAN);
    writeFileSync(join(folder, 'gleaner.tfvars.json'), JSON.stringify(SETTINGS));
  });
  afterEach(async () => {
    await google.close();
    rmSync(folder, {recursive: true});
  });

  const variables = (env: Record<string, string>): Record<string, string> => ({
    PATH: `${folder}${delimiter}${process.env.PATH}`,
    CALLS: join(folder, 'calls'),
    PLAN_FILE: join(folder, 'plan.json'),
    TMPDIR: join(folder, 'tmp'),
    XDG_CACHE_HOME: join(folder, 'cache'),
    GLEANER_GOOGLE_APIS: google.url,
    ...env,
  });
  const deploy = (args: string[], env: Record<string, string> = {}) =>
    gleaner(['deploy', ...args], {cwd: folder, env: variables(env)});
  /** The same with a clock that steps in place of a wait, and a lock file in the folder. */
  const deployAtOnce = (args: string[], env: Record<string, string> = {}) =>
    alone(() => runAtOnce(join(folder, 'lock.hcl'), args), {cwd: folder, env: variables(env)});

  const verbs = () =>
    readFileSync(join(folder, 'calls'), 'utf8')
      .trim()
      .split('\n')
      .map(call => call.split(' ')[1]);

  it('gleaner deploy prepares the project, plans, applies the plan that it showed with its own key, prints the outputs, and keeps no plan', async () => {
    const {code, stdout, stderr} = await deployAtOnce(['--yes', '--json']);
    assert.equal(code, 0, stderr);
    assert.deepEqual(verbs(), ['init', 'plan', 'show', 'apply', 'output']);
    const calls = readFileSync(join(folder, 'calls'), 'utf8');
    assert.match(
      calls,
      /-backend-config=bucket=my-project-123-gleaner-terraform -backend-config=prefix=gleaner/,
    );
    assert.match(
      calls,
      /plan .*-var-file=\S+gleaner\.tfvars\.json -var-file=\S+artifacts\.auto\.tfvars\.json/,
    );
    assert.deepEqual(JSON.parse(stdout).outputs.bucket, 'my-project-123-gleaner');
    const keyOf = (verb: string) => readFileSync(join(folder, `calls.${verb}-key`), 'utf8');
    assert.match(keyOf('plan'), /^[0-9a-f]{64}$/);
    assert.equal(keyOf('apply'), keyOf('plan'));
    assert.deepEqual(readdirSync(join(folder, 'tmp')), []);
    assert.match(
      stderr,
      /The bucket is in us-central1, and us-east5-b in another region: runs need allow_cross_region, .* \$0\.02/,
    );
    assert.match(stderr, /1 settings of Firestore's fields are slow/);
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
      'eventarc',
      'pubsub',
      'run',
    ]);
    assert.equal(google.versions.get(STATE), true);
  });

  it('gleaner deploy changes nothing in a prepared project but the accounts, and turns on versions of an older state bucket @long', async () => {
    assert.equal((await deployAtOnce(['--yes'])).code, 0);
    google.versions.set(STATE, false);
    google.calls.length = 0;
    const {code, stderr} = await deployAtOnce(['--yes']);
    assert.equal(code, 0, stderr);
    assert.equal(google.versions.get(STATE), true);
    const changes = google.calls.filter(call => /^(POST|PATCH) \/(v1|storage)/.test(call));
    assert.deepEqual(
      changes.filter(call => !call.includes('generateServiceIdentity')),
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
    assert.equal(google.identities.size, 5);
  });

  it('gleaner deploy prints the most that an hour can cost in the dearest zone, and changes nothing', async () => {
    const {stdout} = await deploy(['--plan', '--json']);
    const {mocked, resources, most_an_hour} = JSON.parse(stdout);
    assert.equal(mocked, false);
    assert.deepEqual(resources, ['google_cloudfunctions2_function.function["on-tick"]']);
    assert.equal(most_an_hour.dearest_zone, 'us-east5-b');
    assert.ok(Math.abs(most_an_hour.tpus_usd - 3 * 8 * 1.215) < 1e-9);
    assert.deepEqual(verbs(), ['init', 'plan', 'show']);
    assert.deepEqual(google.calls, []);
  });

  it('gleaner deploy repeats until the agents of Google are ready, and says what is left', async () => {
    const env = {FAIL_VERB: 'apply', FAIL_TIMES: '3', FAIL_TEXT: EVENTARC};
    const {code, stderr} = await deployAtOnce(['--yes'], env);
    assert.equal(code, 0, stderr);
    const again = ['plan', 'show', 'apply'];
    assert.deepEqual(verbs(), ['init', 'plan', 'show', 'apply', ...again, ...again, ...again, 'output']);
    assert.match(stderr, /Google has not finished an earlier step: .*Eventarc Service Agent/);
    assert.match(
      stderr,
      /Repeating in 30 s, for 12 minutes at most[\s\S]*Repeating in 60 s[\s\S]*Repeating in 120 s/,
    );
    assert.match(
      stderr,
      /2 resources are left: google_eventarc_trigger\.document\["on-job"\], google_firestore_field/,
    );
  });

  it('gleaner deploy ends the repeats after twelve minutes, with the last error @long', async () => {
    const env = {FAIL_VERB: 'apply', FAIL_TIMES: '99', FAIL_TEXT: NO_AGENT};
    const {code, stderr} = await deployAtOnce(['--yes'], env);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /Failed to apply: .*does not exist.*not finished for 12 minutes: run the command again later/,
    );
    assert.equal(verbs().filter(verb => verb === 'apply').length, 8);
  });

  it('gleaner deploy repeats no other failure, and says in one line what to do', async () => {
    const {code, stderr} = await deployAtOnce(['--yes'], {
      FAIL_VERB: 'apply',
      FAIL_TEXT: "Error 403: Permission 'pubsub.topics.create' denied on resource",
    });
    assert.equal(code, 1);
    assert.match(
      stderr,
      /gleaner: Failed to apply: .*; grant the calling account a role with pubsub\.topics\.create/,
    );
    assert.deepEqual(verbs(), ['init', 'plan', 'show', 'apply']);
  });

  it('gleaner deploy keeps the settings, the digests, the account and the hashes of the provider beside the state', async () => {
    const lock = `provider "registry.terraform.io/hashicorp/google" {\n  version     = "7.45.0"\n}\n`;
    writeFileSync(join(folder, 'lock.hcl'), lock);
    google.makeBucket(STATE);
    await google.put(STATE, 'gleaner/terraform.lock.hcl', lock.replace('7.45.0', '7.44.0'));
    const deployed = await deployAtOnce(['--yes']);
    assert.equal(deployed.code, 0, deployed.stderr);
    assert.deepEqual(await google.names(STATE), [
      'gleaner/deployments/2026-11-25T10:00:02.000Z.json',
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
      assert.equal(existsSync(join(folder, 'calls')), false);
    });
  });

  it('gleaner deploy mocks the plan of a project without a bucket for the state @long', async () => {
    const {stderr} = await deploy(['--plan', '--json'], {
      FAIL_VERB: 'init',
      FAIL_TEXT:
        "Failed to get existing workspaces: querying Cloud Storage failed: storage: bucket doesn't exist",
    });
    assert.match(
      stderr,
      /mocked, because the bucket of the state does not exist yet, which a deployment makes/,
    );
  });

  it('gleaner deploy ends Terraform in order after Ctrl-C, keeps no plan, and exits with 130', async () => {
    const child = spawn(process.execPath, [MAIN, 'deploy', '--yes'], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {...process.env, ...variables({SLOW_VERB: 'apply'})},
    });
    const [said, ended] = [text(child.stderr), once(child, 'exit')];
    await until('Terraform is at work', () => existsSync(join(folder, 'calls.slow')));
    child.kill('SIGINT');
    const [[code], stderr] = [await ended, await said];
    assert.equal(code, 130, stderr);
    assert.match(stderr, /Interrupted: run the command again/);
    assert.equal(readFileSync(join(folder, 'calls.interrupted'), 'utf8'), 'once\n');
    assert.deepEqual(readdirSync(join(folder, 'tmp')), []);
  });

  it('gleaner deploy applies nothing without a terminal and without --yes', async () => {
    const {code, stderr} = await deploy([]);
    assert.equal(code, 1);
    assert.match(stderr, /add --yes/);
    assert.equal(existsSync(join(folder, 'calls')), false);
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
      '{"project": "p", "region": "r", "zones": []}',
      /max_budget_usd is missing/,
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
