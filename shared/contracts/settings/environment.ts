import {z} from 'zod';
import {type Ceilings, modelProblem, poolProblem} from '../../domain/billing/ceilings.ts';
import {DEFAULT_DEPLOYMENT, isDeployment} from '../../domain/deployment.ts';
import {hostsOfType, MAX_HOSTS} from '../../domain/fleet/accelerators.ts';
import {isZone} from '../../domain/names.ts';
import {environmentShape} from '../../domain/records/field-schema.ts';
import {poolSettings, poolTerms} from '../../domain/records/pool-settings.ts';
import {DISK_GB, provider, providerProblem} from '../../domain/records/providers.ts';
import {identityEnvironment} from './identity-settings.ts';
import {LEAST_KEY_CHARS, receiverProblem} from './webhook.ts';

const days = (fallback: number) => z.coerce.number().int().min(1).max(3650).default(fallback);
const seconds = (fallback: number) => z.coerce.number().positive().max(86_400).default(fallback);

const SECRET =
  'projects/[a-z0-9][a-z0-9.:-]{0,62}/secrets/[A-Za-z0-9_-]{1,255}(/versions/[A-Za-z0-9_-]{1,63})?';
const JOB_SECRET = `[a-z][a-z0-9_-]{0,62}=${SECRET}`;
/** As startup.sh and the agent accept it. */
const ADDRESS =
  /^(https:\/\/[A-Za-z0-9._-]+|http:\/\/(127(\.[0-9]{1,3}){3}|localhost|\[::1\]))(:[0-9]{1,5})?(\/[A-Za-z0-9._~%/+-]*)?$/;

/** True for an address to which a token may be sent: encrypted, or on this machine, with a port in the valid range. */
const isSafeAddress = (text: string) => ADDRESS.test(text) && URL.canParse(text);

/** Model of a run that names none, unless the deployment sets one. */
export const DEFAULT_MODEL = 'Qwen/Qwen2.5-0.5B';

const listOf = (text: string) => text.split(',').map(each => each.trim());

/** A name, or a path such as `projects/P/global/networks/N` for a network of another project. */
const NETWORK = /^(projects\/[a-z0-9.:-]{1,63}\/global\/networks\/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/;
const SUBNETWORK =
  /^(projects\/[a-z0-9.:-]{1,63}\/regions\/[a-z0-9-]{1,63}\/subnetworks\/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** `hub`, `hub:ORG/`, `hub:ORG/NAME`, `gs://`, `gs://BUCKET/PREFIX/`, `gs://BUCKET/FOLDER`, `folder`. */
const MODEL_SOURCE = /^(hub|hub:[\w.-]+(\/[\w.-]*)?|gs:\/\/|gs:\/\/[a-z0-9][\w.-]*\/.*|folder)$/;

/** As startup.sh accepts it. */
const bucket = z.string().regex(/^[a-z0-9][a-z0-9._-]{1,221}$/, 'the name of a bucket, without gs://');

const STATE_COLLECTIONS = 'runs pools workers zones prices system tasks control events execs notices'.split(
  ' ',
);

const variables = z.object({
  ...identityEnvironment,
  GLEANER_PROJECT: z.string().min(1),
  /** Name that separates the deployments of one project: see domain/deployment.ts. */
  GLEANER_DEPLOYMENT: z
    .string()
    .refine(isDeployment, '4 to 15 lower-case letters, digits and dashes, such as gleaner')
    .default(DEFAULT_DEPLOYMENT),
  GLEANER_BUCKET: bucket,
  /** Region of GLEANER_BUCKET. Without it no traffic between regions is counted or refused. */
  GLEANER_REGION: z
    .string()
    .regex(/^[a-z]+-[a-z]+\d+$/, 'a region such as us-central1')
    .optional(),
  /** Bucket of the workers' logs, with a lifetime and readers of its own; by default GLEANER_BUCKET. */
  GLEANER_LOGS_BUCKET: bucket.optional(),
  /** Bucket of the checkpoints of jobs, without soft delete; by default GLEANER_BUCKET. */
  GLEANER_CHECKPOINTS_BUCKET: bucket.optional(),
  /** `firestore`, `firestore:DATABASE`, or `sqlite:FILE` on a local cloud. */
  GLEANER_STORE: z
    .string()
    .regex(/^(firestore(:.+)?|sqlite:.+)$/, 'firestore, firestore:DATABASE or sqlite:FILE')
    .default('firestore'),
  /** Address of worker-api, for the functions that call it or name it to workers: see `requireWorkerApi`. */
  GLEANER_WORKER_API: z
    .string()
    .refine(isSafeAddress, 'an https address such as https://worker-api-123.us-central1.run.app')
    .optional(),
  GLEANER_BUNDLE: z.string().regex(/^[0-9a-f]{64}$/, 'the sha256 of the worker bundle'),
  GLEANER_DEFAULT_MODEL: z.string().min(1).default(DEFAULT_MODEL),
  /** Source of models named `org/name`, instead of huggingface.co. */
  GLEANER_HF_ENDPOINT: z
    .string()
    .refine(isSafeAddress, 'an address such as https://huggingface.co, without a user or a query')
    .optional(),
  /** Secrets that jobs may name: NAME=projects/P/secrets/S, with commas between them. Only worker-api reads them. */
  GLEANER_JOB_SECRETS: z
    .string()
    .regex(
      new RegExp(`^(${JOB_SECRET}(,${JOB_SECRET})*)?$`),
      'names of jobs and of secrets, such as wandb=projects/P/secrets/S, with commas between them',
    )
    .default('')
    .transform(text => Object.fromEntries(listOf(text).flatMap(each => (each ? [each.split('=')] : [])))),
  /** Name of the secret that holds a token for the hub. Only worker-api reads it, and the one for git. */
  GLEANER_HF_TOKEN_SECRET: z
    .string()
    .regex(
      new RegExp(`^${SECRET}$`),
      'the name of a secret, projects/P/secrets/S or projects/P/secrets/S/versions/V',
    )
    .optional(),
  /** Host of private repositories, and the name of the secret with a token for it. */
  GLEANER_GIT_TOKEN_SECRET: z
    .string()
    .regex(
      new RegExp(`^[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?=${SECRET}$`),
      'a host and the name of a secret, such as github.com=projects/P/secrets/S',
    )
    .optional(),
  GLEANER_NOTIFY: z.enum(['json', 'slack']).optional(),
  /** Address of the receiver, for on-task. It may be a secret itself. */
  GLEANER_NOTIFY_URL: z.string().trim().optional(),
  /** Key that signs notifications, for on-task: see webhook.ts. */
  GLEANER_NOTIFY_KEY: z
    .string()
    .trim()
    .min(LEAST_KEY_CHARS, `${LEAST_KEY_CHARS} characters or more, such as \`openssl rand -hex 32\` prints`)
    .optional(),
  /** Network of the nodes; by default the project's network `default`. The name of a subnetwork is used in every region. */
  GLEANER_NETWORK: z.string().regex(NETWORK, 'the name of a network, or its path').optional(),
  GLEANER_SUBNETWORK: z.string().regex(SUBNETWORK, 'the name of a subnetwork, or its path').optional(),
  /** Without external addresses the subnetwork needs Private Google Access, and Cloud NAT for Python packages and the hub. */
  GLEANER_EXTERNAL_IPS: z.enum(['true', 'false']).default('false'),
  /** Whether workers reach the internet, through external addresses or Cloud NAT. */
  GLEANER_INTERNET: z.enum(['true', 'false']).default('true'),
  /** Network of jobs, commands and setup scripts: `nat` like the worker, or `none`. */
  GLEANER_JOB_EGRESS: z.enum(['nat', 'none']).default('nat'),
  GLEANER_JOBS_COLLECTION: z
    .string()
    .regex(/^[a-z][a-z0-9_-]{0,99}$/, 'the name of a collection, such as jobs')
    .refine(
      name => !STATE_COLLECTIONS.includes(name),
      `another name than those of the control plane: ${STATE_COLLECTIONS.join(', ')}`,
    )
    .default('jobs'),
  /** Addresses of the APIs on a local cloud, instead of Google's. */
  GLEANER_STORAGE_ENDPOINT: z.url().optional(),
  GLEANER_TPU_ENDPOINT: z.url().optional(),
  GLEANER_COMPUTE_ENDPOINT: z.url().optional(),
  GLEANER_BILLING_ENDPOINT: z.url().optional(),
  GLEANER_STS_ENDPOINT: z.url().optional(),
  GLEANER_SECRETS_ENDPOINT: z.url().optional(),
  /** Token that a client sends to write to a local cloud. */
  GLEANER_LOCAL_TOKEN: z.string().min(1).optional(),
  GLEANER_ZONES: z
    .string()
    .default('us-central1-a')
    .transform(listOf)
    .refine(
      zones => zones.every(isZone) && new Set(zones).size === zones.length,
      'zones such as us-central1-a, each once, with commas between them',
    ),
  /** Settings of the deployment's own pool, until a message changes them. */
  ...environmentShape(poolSettings),
  /** Ceilings that no message can raise: see domain/billing/ceilings.ts. First, the TPUs that may exist at once. */
  GLEANER_MAX_WORKERS: z.coerce.number().int().min(1).max(100_000).default(100),
  /** Hosts that a TPU may have: one document receives the heartbeats of all hosts. */
  GLEANER_MAX_HOSTS: z.coerce.number().int().min(1).max(256).default(MAX_HOSTS),
  GLEANER_MAX_BUDGET_USD: z.coerce.number().positive().optional(),
  /** Zones that a message may name; without it, every zone. */
  GLEANER_ALLOWED_ZONES: z
    .string()
    .transform(listOf)
    .refine(zones => zones.every(isZone), 'zones such as us-central1-a, with commas between them')
    .optional(),
  /** Allowed sources of models; by default the hub and every bucket, and on a local cloud folders too. */
  GLEANER_MODEL_SOURCES: z
    .string()
    .transform(listOf)
    .refine(
      sources => sources.every(source => MODEL_SOURCE.test(source)),
      'hub, hub:ORG/, gs://BUCKET/PREFIX/ or folder, with commas between them',
    )
    .optional(),
  /** Providers that pools may use. Every tick lists the nodes of each, so each needs its API and its role. */
  GLEANER_PROVIDERS: z.string().default('tpu-api').transform(listOf).pipe(z.array(provider).min(1)),
  ...environmentShape({
    provider: {...poolTerms.provider, default: 'tpu-api'},
    accelerator: {...poolTerms.accelerator, default: 'v5litepod-1'},
    /** By default the usual version, or image, of the accelerator's generation. */
    runtime_version: poolTerms.runtime_version,
    disk_gb: {...poolTerms.disk_gb, default: DISK_GB},
    spot: {...poolTerms.spot, default: true},
  }),
  /** Longest wait of a request in a queue. Its slot waits too, and a new request starts at the end of the queue. */
  GLEANER_QUEUE_S: seconds(14_400),
  /**
   * Interval of heartbeats. A lease outlasts several lost heartbeats, and the limit of silence outlasts a lease.
   * Heartbeats are most of the cost of the control plane: docs/inside/benchmarks.md.
   */
  GLEANER_HEARTBEAT_S: seconds(60),
  GLEANER_LEASE_S: seconds(240),
  GLEANER_SILENT_S: seconds(300),
  /** Longest time without progress of an agent that sends heartbeats: while it works, compiles, or loads a model. */
  GLEANER_STALL_S: seconds(600),
  GLEANER_COMPILE_S: seconds(900),
  GLEANER_LOAD_S: seconds(3600),
  /** Cloud TPU sometimes lists a spot node as CREATING for half an hour, and bills it only from READY on. */
  GLEANER_CREATE_S: seconds(2700),
  /** A host sends its first heartbeat when its boot begins. */
  GLEANER_BOOT_S: seconds(600),
  /** A boot takes a minute. A download that keeps breaking off gives up after ten. */
  GLEANER_SETUP_S: seconds(900),
  GLEANER_DRAIN_S: seconds(900),
  GLEANER_REPAIR_S: seconds(900),
  GLEANER_ASK_AGAIN_S: seconds(180),
  /** Shortest and longest seconds between two requests to a zone that refuses nodes: see domain/zone/limiter.ts. */
  GLEANER_RETRY_S: seconds(60),
  GLEANER_LONGEST_RETRY_S: seconds(300),
  /** Shortest and longest seconds until a run whose model could not be downloaded tries again: see domain/run/model-failures.ts. */
  GLEANER_MODEL_RETRY_S: seconds(600),
  GLEANER_LONGEST_MODEL_RETRY_S: seconds(3600),
  /** Effect of lost nodes on the requests to a zone: see domain/zone/placement.ts. */
  GLEANER_CHURN_WINDOW_S: seconds(1800),
  GLEANER_SHORT_LIFE_S: seconds(300),
  /** Time after which an attempt of a job counts as long: an alert is raised, and the attempt continues. */
  GLEANER_LONG_JOB_S: z.coerce.number().positive().max(604_800).default(21_600),
  /** Interval at which ticks compare a stream's checkpoint with the bucket. */
  GLEANER_AUDIT_S: seconds(1800),
  /** Days for which documents of ended work are kept: see docs/inside/rules.md. The bucket keeps the output of runs. */
  GLEANER_STREAMS_DAYS: days(90),
  GLEANER_EVENTS_DAYS: days(30),
  GLEANER_COMMANDS_DAYS: days(90),
});

/** Days for which documents are kept: of streams of ended runs, of events and tasks, of commands. `loadConfig` refuses a wrong number. */
export function keptDays(env: Readonly<Record<string, string | undefined>>) {
  const daysIn = (name: `GLEANER_${'STREAMS' | 'EVENTS' | 'COMMANDS'}_DAYS`) => {
    const schema = variables.shape[name];
    return schema.safeParse(env[name]).data ?? schema.parse(undefined);
  };
  return {
    streams: daysIn('GLEANER_STREAMS_DAYS'),
    events: daysIn('GLEANER_EVENTS_DAYS'),
    commands: daysIn('GLEANER_COMMANDS_DAYS'),
  };
}

/** The variables in seconds. */
export const timings = Object.entries(variables.shape).filter(([name]) => name.endsWith('_S'));

export function timingDefaults(): Record<string, string> {
  return Object.fromEntries(timings.map(([name, schema]) => [name, String(schema.parse(undefined))]));
}

type Environment = z.infer<typeof variables>;

const isLocal = ({GLEANER_STORE}: Environment) => GLEANER_STORE.startsWith('sqlite:');

export function ceilingsOf(given: Environment): Ceilings {
  const sources = isLocal(given) ? ['hub', 'gs://', 'folder'] : ['hub', 'gs://'];
  return {
    max_workers: given.GLEANER_MAX_WORKERS,
    max_budget_usd: given.GLEANER_MAX_BUDGET_USD ?? null,
    allowed_zones: given.GLEANER_ALLOWED_ZONES ?? null,
    model_sources: given.GLEANER_MODEL_SOURCES ?? sources,
    has_internet: given.GLEANER_INTERNET === 'true',
  };
}

export function ownTerms(given: Environment) {
  const {GLEANER_PROVIDER: provider, GLEANER_PROVISIONING: provisioning, GLEANER_SPOT: spot} = given;
  const disk_gb = provider === 'compute-engine' ? given.GLEANER_DISK_GB : null;
  return {provider, provisioning, spot, disk_gb};
}

/** The variables of the functions, with their defaults, parsed and checked against each other. */
export const environment = variables.superRefine((given, {addIssue}) => {
  const {GLEANER_HEARTBEAT_S: beat, GLEANER_LEASE_S: lease, GLEANER_SILENT_S: silent} = given;
  const {GLEANER_POLL_S: poll, GLEANER_STALL_S: stall} = given;
  const refuse = (name: string, message: string) => addIssue({code: 'custom', path: [name], message});
  if (lease < 2 * beat)
    refuse('GLEANER_LEASE_S', `${lease} s is less than two heartbeats of ${beat} s (GLEANER_HEARTBEAT_S)`);
  if (silent < lease)
    refuse('GLEANER_SILENT_S', `${silent} s is less than a lease of ${lease} s (GLEANER_LEASE_S)`);
  if (stall < 2 * poll)
    refuse(
      'GLEANER_POLL_S',
      `${poll} s is more than half of ${stall} s (GLEANER_STALL_S), after which an idle worker is replaced`,
    );
  if (given.GLEANER_STORE === 'firestore' && given.GLEANER_DEPLOYMENT !== DEFAULT_DEPLOYMENT)
    refuse('GLEANER_STORE', 'name a database, such as firestore:NAME: the default one is for one deployment');
  const {GLEANER_NOTIFY_URL: receiver} = given;
  const whyReceiver = receiver && receiverProblem(receiver, given.GLEANER_LOCAL_TOKEN !== undefined);
  if (whyReceiver) refuse('GLEANER_NOTIFY_URL', whyReceiver);
  const ceilings = ceilingsOf(given);
  const {GLEANER_ZONES: zones, GLEANER_WORKERS_PER_ZONE: workers_per_zone} = given;
  const whyPool = poolProblem({zones, workers_per_zone}, ceilings);
  if (whyPool) refuse('GLEANER_ZONES', whyPool);
  const whyProvider = providerProblem(ownTerms(given), given.GLEANER_PROVIDERS);
  if (whyProvider) refuse('GLEANER_PROVIDER', whyProvider);
  const hosts = hostsOfType(given.GLEANER_ACCELERATOR);
  if (hosts > given.GLEANER_MAX_HOSTS)
    refuse(
      'GLEANER_ACCELERATOR',
      `${given.GLEANER_ACCELERATOR} has ${hosts} hosts, and GLEANER_MAX_HOSTS allows ${given.GLEANER_MAX_HOSTS}`,
    );
  if (!isLocal(given) && ceilings.model_sources.includes('folder'))
    refuse('GLEANER_MODEL_SOURCES', 'folder is for a local cloud: name a bucket instead');
  // Without the internet, each run has to name its model.
  const whyModel = modelProblem(given.GLEANER_DEFAULT_MODEL, {...ceilings, has_internet: true});
  if (whyModel) refuse('GLEANER_DEFAULT_MODEL', whyModel);
});
