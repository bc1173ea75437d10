/** The tables of docs/inside/from-the-seeds.md name what the product has. */
import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {controlJsonSchema} from '../../cli/build/reference/json-schemas.ts';
import {gleanerProgram} from '../../cli/program.ts';
import {environment} from '../../shared/contracts/settings/environment.ts';
import {jobDocument} from '../../shared/domain/records/job.ts';
import {filesOf, foldersOf} from '../support/docs/document-paths.ts';
import {commandsOf, type Names, problemsOf, rowsOf} from '../support/docs/seed-tables.ts';
import {ROOT} from '../support/machine/process.ts';

const read = (file: string) => readFileSync(ROOT + file, 'utf8');

/** Words of seeds 3 and 4: each is in a row with its number. */
const PROMISED: Record<string, string> = {
  '3.1': 'tpu_jobs id',
  '3.2': `challenge_number code timeout 300 status created_at scheduled_at started_at completed_at updated_at result
    error metadata submitted_by description`,
  '3.3': 'pending scheduled running completed failed',
  '3.4': 'JOB_ID JAX_PLATFORMS=tpu TPU_LIBRARY_PATH=/lib',
  '3.5': 'jax jnp logger challenge_number __builtins__ result',
  '3.6': 'TPU 1000x1000 available',
  '3.7': 'listener ADDED MODIFIED claim PROJECT_ID TPU_CORES',
  '3.8': `tpu-job- app challenge job-id ttlSecondsAfterFinished backoffLimit restartPolicy nodeSelector google.com/tpu
    4Gi cpu privileged`,
  '3.9': 'deploy.sh tpu-worker job-creator apply verify',
  '3.10': `firestore-accessor roles/datastore.user firestore-key key.json job-creator-sa job-creator-role
    job-creator-binding`,
  '3.11': 'submit_test_job.py challenge timeout',
  '3.12': 'monitor_job.py --list ID --follow -f',
  '3.13': 'kubectl rollout delete TTL status.successful=1 databases uninstall console',
  '3.14': `identity network sandbox validate limits timeouts cache libs image topology health backoff quota cost
    scale-down preemptible alerts`,
  '3.15': 'failed cost long-running creator',
  '3.16': 'privileged first 500 nodes ct5lp-hightpu-1t idle',
  '3.17': `tpu_worker.py job_creator.py Dockerfile.tpu-worker Dockerfile.job-creator k8s/ requirements.txt README.md
    deploy.sh submit_test_job.py monitor_job.py key.json restart`,
  '4.1': 'manage_tpu.sh create --tpu-name --type --zone --node-count Queued ACTIVE',
  '4.2': 'status',
  '4.3': 'delete queue VM',
  '4.3b': 'list versions --queued --version --spot --project names',
  '4.4': 'launch_on_vm.sh --tpu-name --config --zone --output-dir --project',
  '4.5': '--setup-script --branch --pr --repo-url --jax-version newest nightly X.Y.Z --ramfs-dir',
  '4.6': '--update FETCH_HEAD --depth=1 pull/N/head',
  '4.7': '--command pkill',
  '4.8': '--discover-only',
  '4.9': '--test_restart_workflow',
  '4.10': 'SCP',
  '4.11': 'fuser',
  '4.12': 'publickey agent dpkg jax.distributed dnsutils',
  '4.13': 'single multislice DCN initialize',
  '4.14': 'inner reproducibility debuggability preemption scale XPK',
  '4.15': 'live exit',
  '4.16': 'login --config guide',
};

/** Variables that only a VM has: those in startup.sh and in the agent. */
function variablesOfVms(): string[] {
  const files = readdirSync(`${ROOT}worker-startup`, {recursive: true, encoding: 'utf8'});
  const sources = files.filter(file => /\.(sh|py)$/.test(file)).map(file => read(`worker-startup/${file}`));
  return sources.flatMap(text => [...text.matchAll(/\bGLEANER_[A-Z_]+/g)].map(([name]) => name));
}

/** Commands of `gleaner`, as cli/main.ts has them. */
function namesOfProduct(): Names {
  const files = filesOf();
  const {oneOf} = controlJsonSchema() as unknown as {
    oneOf: {properties: Record<string, {const?: string}>}[];
  };
  return {
    commands: commandsOf(gleanerProgram()),
    scripts: new Set(Object.keys(JSON.parse(read('package.json')).scripts)),
    variables: new Set([...Object.keys(environment.shape), ...variablesOfVms()]),
    files,
    folders: foldersOf(files),
    messages: new Map(
      oneOf.map(({properties}) => [properties.action?.const ?? '', new Set(Object.keys(properties))]),
    ),
    fields: new Set(Object.keys(jobDocument.shape)),
    keys: new Set(Object.keys(JSON.parse(read('docs/run.schema.json')).properties)),
  };
}

describe('docs/inside/from-the-seeds.md', () => {
  const rows = rowsOf(read('docs/inside/from-the-seeds.md'));
  const names = namesOfProduct();

  it('names commands, flags, files, variables, messages and fields that exist', () => {
    assert.ok(rows.length > 150, String(rows.length));
    const wrong = rows.flatMap(row => problemsOf(row, names).map(problem => `${row.given}: ${problem}`));
    assert.deepEqual(wrong, []);
  });

  it('has a place for each word of seeds 3 and 4', () => {
    const missing = Object.entries(PROMISED).flatMap(([id, words]) => {
      const text = rows
        .filter(({given}) => given.split(/[ ,]/).includes(id))
        .map(({given}) => given)
        .join(' ');
      return words
        .split(/\s+/)
        .filter(word => !text.includes(word))
        .map(word => `${id} ${word}`);
    });
    assert.deepEqual(missing, []);
  });
});
