/** docs/control-messages.md: every message on topic `control`. */
import {COMMANDS} from '../../../shared/control-plane/events/commands/table.ts';
import {row, schemaOf, typeOf} from './types.ts';

type Words = {effect: string; rejected: string; command: string; example: Record<string, unknown>};

const RUN = {run: 'my-run'};
const TPU = {worker: 'tpu-us-central1-a-0'};

export const WORDS: Record<keyof typeof COMMANDS, Words> = {
  start: {
    effect:
      'Makes a paused run active. Registers every stream of the run in the bucket, also streams whose events were lost.',
    rejected: 'there is no such run and no stream of it in the bucket, or the run was stopped',
    command: 'gleaner run start my-run',
    example: RUN,
  },
  pause: {
    effect: 'TPUs finish their shards and release their streams. TPUs that no other run needs are deleted.',
    rejected: 'there is no such run, or it has ended',
    command: 'gleaner run pause my-run',
    example: RUN,
  },
  stop: {
    effect: 'Ends the run for good. Stored shards stay, and a completed run stays completed.',
    rejected: 'there is no such run',
    command: 'gleaner run stop my-run',
    example: RUN,
  },
  resume: {
    effect: 'Continues a paused run, or ends a stop of creates of a pool. Name one of the two.',
    rejected: 'there is no such run or pool, or the run has ended',
    command: 'gleaner run resume my-run',
    example: RUN,
  },
  retry: {
    effect:
      'Tries one failed stream again, or up to 200 failed streams of the run. Or runs one ended job again, or up to 200 jobs that failed for a cause.',
    rejected: 'nothing has failed, or the run was stopped',
    command: 'gleaner run retry my-run',
    example: RUN,
  },
  cancel: {
    effect:
      'Takes a stream out of its run until `retry`, or ends a job. Its TPU learns so at its next heartbeat.',
    rejected: 'there is no such stream or job, or the run was stopped',
    command: 'gleaner jobs cancel my-job',
    example: {job: 'my-job'},
  },
  recreate: {
    effect: 'Replaces a TPU, or gives a deleted slot back to the plan.',
    rejected: 'there is no such slot',
    command: 'gleaner tpus recreate tpu-us-central1-a-0',
    example: TPU,
  },
  delete: {
    effect: 'Deletes a TPU. Its slot stays empty until `recreate`.',
    rejected: 'there is no such slot',
    command: 'gleaner tpus delete tpu-us-central1-a-0 --yes',
    example: TPU,
  },
  rebuild: {
    effect:
      'Rebuilds the documents of one run, or of every run, from the bucket. `tasks/rebuild-RUN` or `tasks/rebuild` shows the progress.',
    rejected: 'the bucket has no stream of the run',
    command: 'gleaner rebuild my-run',
    example: RUN,
  },
  submit: {
    effect: 'Submits a job under an id that the sender chose.',
    rejected: 'the id is taken, or the job is not valid',
    command: 'gleaner jobs submit train.py',
    example: {job: 'my-job', command: ['python', 'train.py']},
  },
  clear: {
    effect: 'Deletes up to 200 documents of ended jobs. Their folders in the bucket stay.',
    rejected: 'no such job has ended',
    command: 'gleaner jobs clear --yes',
    example: {},
  },
  configure: {
    effect: 'Changes the priority or the budget of a run, or permits TPUs of another bundle.',
    rejected:
      'there is no such run, the version differs from `if_version`, or a later message decided the fields',
    command: 'gleaner run configure my-run --priority 5',
    example: {...RUN, priority: 5},
  },
  scale: {
    effect: 'Changes the size, the zones, the kind of requests, the budget or the poll interval of a pool.',
    rejected: 'there is no such pool, the version differs, or a ceiling of the deployment is exceeded',
    command: 'gleaner scale --workers-per-zone 4',
    example: {workers_per_zone: 4},
  },
  update: {
    effect:
      'Changes the source or the environment of a pool. Without both, every host fetches the source again.',
    rejected: 'there is no such pool, or the source needs the internet that the TPUs lack',
    command: 'gleaner update tpu --branch main',
    example: {pool: 'tpu', source: {branch: 'main'}},
  },
  pool: {
    effect:
      'Creates a pool, or changes the size, zones, kind of requests, budget or poll interval of an existing pool.',
    rejected: 'a required field of a new pool is absent, a field cannot change, or a ceiling is exceeded',
    command:
      'gleaner pool create big --accelerator v5litepod-8 --runtime-version v2-alpha-tpuv5-lite --zones us-west4-a --workers-per-zone 2',
    example: {
      pool: 'big',
      accelerator: 'v5litepod-8',
      runtime_version: 'v2-alpha-tpuv5-lite',
      zones: ['us-west4-a'],
      workers_per_zone: 2,
    },
  },
};

/** Fields of messages with the same meaning in every action. Fields of a job have theirs in docs/jobs.md. */
export const FIELDS: Readonly<Record<string, string>> = {
  run: 'id of the run',
  stream: 'id of a stream, such as `007`',
  worker: 'name of the TPU',
  pool: "name of the pool; where optional, the deployment's own",
  job: 'id of the job',
  where: '`{"cause": …}`: jobs that failed for this cause',
  before_at: 'only jobs that ended before this time',
  priority: 'the higher number goes first, -1000 to 1000',
  budget_usd: 'dollars; null is no limit',
  allow_mixed_code: 'true: TPUs of another bundle may continue the run',
  if_version: 'applies only while the document has this version',
  workers_per_zone: 'slots in each zone, 0 to 1000',
  zones: 'zones of the pool',
  provisioning: 'kind of the requests for nodes',
  poll_s: 'seconds until a TPU without work asks again, 1 to 86400',
  accelerator: 'type of each TPU; required for a new pool',
  runtime_version: 'software version of the VMs; required for a new pool',
  spot: 'true: Spot VMs',
  source: 'code: `bundle`, or `repo` with `branch`, `pr` or `commit`',
  environment: '`jax_version`, `setup_script`, `config_file`, `ramfs_dir`',
};

type Field = {name: string; isRequired: boolean; type: string};

function fieldsOf(action: string): Field[] {
  const {schema} = COMMANDS[action as keyof typeof COMMANDS];
  const {properties = {}, required = []} = schemaOf(schema, 'input');
  const names = Object.keys(properties).filter(name => name !== 'action');
  return names.map(name => ({
    name,
    isRequired: required.includes(name),
    type: typeOf(properties[name] ?? {}),
  }));
}

function actionRow([action, {effect, rejected}]: [string, Words]): string {
  const names = fieldsOf(action).map(({name, isRequired}) => `\`${name}\`${isRequired ? ' (required)' : ''}`);
  return row(`\`${action}\``, effect, names.join(', '), rejected);
}

/** Each field once, in the order of its first action, with its widest type. */
function fieldRows(): string[] {
  const uses = Map.groupBy(Object.keys(WORDS).flatMap(fieldsOf), ({name}) => name);
  return [...uses].map(([name, fields]) => {
    const [widest = ''] = fields.map(({type}) => type).sort((a, b) => b.length - a.length);
    return row(`\`${name}\``, widest, FIELDS[name] ?? 'a [field of the job](jobs.md)');
  });
}

function exampleLines([action, {command, example}]: [string, Words]): string[] {
  const message = JSON.stringify({action, ...example});
  return [command, `gcloud pubsub topics publish control --message='${message}'`];
}

export function controlPage(template: string): string {
  const words = Object.entries(WORDS);
  const parts = {
    actions: ['| action | effect | fields | rejected when |', '|---|---|---|---|', ...words.map(actionRow)],
    fields: ['| field | type | meaning |', '|---|---|---|', ...fieldRows()],
    examples: words.flatMap(exampleLines),
  };
  return template.replaceAll(/\{\{(actions|fields|examples)\}\}/g, (_, part: keyof typeof parts) =>
    parts[part].join('\n'),
  );
}
