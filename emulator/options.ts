import type {FunctionProcess} from './functions/function-hosts.ts';
import type {Deployment} from './functions/subscriptions.ts';
import type {SecretReaders} from './secrets.ts';
import type {CloudAddress} from './state/cloud-address.ts';

/** `source` is `cloud`, `functions`, or the name of a TPU. */
export type LogLine = {at: string; source: string; text: string};

export type LocalCloudOptions = {
  /** Folder of all files of the cloud. One cloud at a time runs in a folder. */
  dir: string;
  /** Accepts a folder whose files no cloud of this user wrote on this machine. Their startup scripts will run. */
  adopt?: boolean | undefined;
  /** Port of the HTTP server. 0 stands for the folder's last port, or else any free one. */
  port: number;
  project?: string;
  /** Bucket of the default deployment. */
  bucket?: string;
  /** Deployments on this cloud, each with its own bucket, store, topics and functions; by default `gleaner` alone. */
  deployments?: Pick<Deployment, 'name' | 'bucket'>[];
  /** Starts only Cloud Storage: no Pub/Sub, functions, TPUs or ticks. */
  storage_only?: boolean;
  /** Uses Google's emulators for Firestore and Pub/Sub instead of SQLite and the cloud's own Pub/Sub. Needs gcloud and Java. */
  google_emulators?: boolean;
  /** Collection of the documents of jobs, GLEANER_JOBS_COLLECTION of the functions; by default that of the triggers. */
  jobs_collection?: string | undefined;
  /** Interval of the Scheduler job; by default 1000. */
  tick_interval_ms?: number;
  /** Process of the functions. Without it, events are kept on disk until a cloud with functions starts. */
  function_host?: Partial<FunctionProcess>;
  /** File with the trigger of each function; by default `functions/triggers.json`. */
  triggers?: string;
  /** Variables on top of the environment of every VM. */
  vm_env?: Record<string, string>;
  /** Accounts that may read each secret. The versions of a secret are files `secrets/NAME/NUMBER` in `dir`, with the mode 600. */
  secret_readers?: SecretReaders;
  /** Duration of a node's creation; by default 500. */
  create_ms?: number;
  /** Duration of a node's deletion; by default 200. */
  delete_ms?: number;
  /** Duration of each step of a queued resource; by default 200. */
  queue_ms?: number;
  /** Time between a preemption notice and the preemption; by default 10,000, and 30,000 at Google. */
  preemption_notice_ms?: number;
  log?: (line: LogLine) => void;
};

export type LocalCloud = CloudAddress & {
  /** Token for writes, which a client sends as `Authorization: Bearer`. */
  token: string;
  port: number;
  /** Every address of the cloud. */
  routes: readonly {method: string; template: string}[];
  deployments: readonly Deployment[];
  /** Injects a fault like `gleaner local fault KIND TARGET`, and returns a sentence about the effect. */
  fault(kind: string, target: string): Promise<string>;
  /** Ends the servers, every VM and the functions. The files stay for the next cloud in the folder. */
  close(): Promise<void>;
  /** Resolves after `close` or `POST /_local/shutdown`. Rejects if one of Google's emulators has ended. */
  closed: Promise<void>;
};
