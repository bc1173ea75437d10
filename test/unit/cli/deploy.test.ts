/** `gleaner deploy` with a program in place of terraform, which records its calls and fails as a test asks. */
import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
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
import {fileURLToPath} from 'node:url';
import {until} from '../../support/until.ts';

const MAIN = fileURLToPath(new URL('../../../cli/main.ts', import.meta.url));

const SETTINGS = {
  project: 'my-project-123',
  region: 'us-central1',
  zones: ['us-central1-a'],
  max_budget_usd: 50,
};

/** A plan with one function, as `terraform show -json` prints it. */
const PLAN = JSON.stringify({
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
            service_config: [
              {
                ...{available_memory: '1Gi', available_cpu: '1', max_instance_count: 1},
              },
            ],
          },
        },
        {address: 'data.google_project.project', mode: 'data', type: 'google_project', values: {}},
      ],
    },
  },
});

/** Answers by the verb. FAIL_VERB fails once, with FAIL_TEXT; each call is a line of `calls`. */
const PROGRAM = `#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
verb=$2
printf '%s' "$TF_VAR_ticket_key" >> "$CALLS.$verb-key"
if [ "$verb" = "$FAIL_VERB" ] && [ ! -e "$CALLS.failed" ]; then
  touch "$CALLS.failed"
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

describe('gleaner deploy @full', () => {
  let folder: string;
  let children: ChildProcess[];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'gleaner-deploy-'));
    children = [];
    mkdirSync(join(folder, 'tmp'));
    writeFileSync(join(folder, 'terraform'), PROGRAM);
    chmodSync(join(folder, 'terraform'), 0o755);
    writeFileSync(join(folder, 'plan.json'), PLAN);
    writeFileSync(join(folder, 'gleaner.tfvars.json'), JSON.stringify(SETTINGS));
  });
  afterEach(() => rmSync(folder, {recursive: true}));

  function deploy(args: string[], env: Record<string, string> = {}) {
    const child = spawn(process.execPath, [MAIN, 'deploy', ...args], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        PATH: `${folder}${delimiter}${process.env.PATH}`,
        ...{
          CALLS: join(folder, 'calls'),
          PLAN_FILE: join(folder, 'plan.json'),
          TMPDIR: join(folder, 'tmp'),
          ...env,
        },
      },
    });
    children.push(child);
    const texts = {stdout: '', stderr: ''};
    child.stdout.on('data', chunk => (texts.stdout += chunk));
    child.stderr.on('data', chunk => (texts.stderr += chunk));
    return new Promise<{code: number | null; stdout: string; stderr: string}>(done =>
      child.once('close', code => done({code, ...texts})),
    );
  }

  const verbs = () =>
    readFileSync(join(folder, 'calls'), 'utf8')
      .trim()
      .split('\n')
      .map(call => call.split(' ')[1]);

  it('plans, applies the plan that it showed with its own key, prints the outputs, and keeps no plan', async () => {
    const {code, stdout, stderr} = await deploy(['--yes', '--json']);
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
  });

  it('prints the most that an hour can cost in the dearest zone', async () => {
    const {stdout} = await deploy(['--plan', '--json']);
    const {mocked, resources, most_an_hour} = JSON.parse(stdout);
    assert.equal(mocked, false);
    assert.deepEqual(resources, ['google_cloudfunctions2_function.function["on-tick"]']);
    assert.equal(most_an_hour.dearest_zone, 'us-east5-b');
    assert.ok(Math.abs(most_an_hour.tpus_usd - 3 * 8 * 1.215) < 1e-9);
    assert.deepEqual(verbs(), ['init', 'plan', 'show']);
  });

  it('plans and applies once more after a service agent that is not ready', async () => {
    const {code} = await deploy(['--yes', '--repeat-after', '0'], {
      FAIL_VERB: 'apply',
      FAIL_TEXT: 'Service account service-1@gcp-sa-pubsub.iam.gserviceaccount.com does not exist.',
    });
    assert.equal(code, 0);
    assert.deepEqual(verbs(), ['init', 'plan', 'show', 'apply', 'plan', 'show', 'apply', 'output']);
  });

  it('repeats no other failure, and says in one line what to do', async () => {
    const {code, stderr} = await deploy(['--yes'], {
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

  it('prints the command that makes a missing bucket of the state', async () => {
    const {code, stderr} = await deploy(['--plan'], {
      FAIL_VERB: 'init',
      FAIL_TEXT:
        "Failed to get existing workspaces: querying Cloud Storage failed: storage: bucket doesn't exist",
    });
    assert.equal(code, 1);
    assert.match(
      stderr,
      /gcloud storage buckets create gs:\/\/my-project-123-gleaner-terraform --project=my-project-123/,
    );
  });

  it('ends Terraform in order after Ctrl-C, keeps no plan, and exits with 130', async () => {
    const running = deploy(['--yes'], {SLOW_VERB: 'apply'});
    await until('Terraform is at work', () => existsSync(join(folder, 'calls.slow')));
    for (const child of children) child.kill('SIGINT');
    const {code, stderr} = await running;
    assert.equal(code, 130, stderr);
    assert.match(stderr, /Interrupted: run the command again/);
    assert.equal(readFileSync(join(folder, 'calls.interrupted'), 'utf8'), 'once\n');
    assert.deepEqual(readdirSync(join(folder, 'tmp')), []);
  });

  it('applies nothing without a terminal and without --yes', async () => {
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
      /"max_worker" is no setting; the settings are .*max_workers/,
    ],
    [
      'a file without a ceiling of dollars',
      '{"project": "p", "region": "r", "zones": []}',
      /max_budget_usd is missing/,
    ],
    [
      'a name that leaves the folder',
      JSON.stringify({...SETTINGS, name: '../../x'}),
      /name.*4 to 15 lower-case/,
    ],
  ] as const)
    it(`refuses settings in one line: ${name}`, async () => {
      if (text === undefined) rmSync(join(folder, 'gleaner.tfvars.json'));
      else writeFileSync(join(folder, 'gleaner.tfvars.json'), text);
      const {code, stderr} = await deploy(['--yes']);
      assert.equal(code, 1);
      assert.match(stderr, expected);
    });
});
