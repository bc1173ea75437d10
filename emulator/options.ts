import type {ObjectInfo} from '../shared/ports.ts';
import type {Where} from './environment.ts';

/** `source` is `cloud`, `functions`, or the name of a TPU. */
export type LogLine = {at: string; source: string; text: string};

export type LocalCloudOptions = {
  /** Everything is kept here; one live cloud at a time. */
  dir: string;
  /** 0: the port that this folder's cloud had before, or any. */
  port: number;
  project?: string;
  bucket?: string;
  /** Buckets and nothing else: no functions, no TPUs, no ticks. */
  storage_only?: boolean;
  tick_interval_ms?: number;
  /** Without it events wait on disk for a cloud that has functions. */
  function_host?: {
    /** The script to fork. */
    entry?: string;
    /** The module that registers the functions. */
    module?: string;
    /** Added to `functionEnvironment`. */
    env?: Record<string, string> | ((where: Where) => Record<string, string>);
  };
  /** The file that says what calls which function. */
  triggers?: string;
  /** Added to the environment of every VM. */
  vm_env?: Record<string, string>;
  create_ms?: number;
  delete_ms?: number;
  /** How long each step of a queued resource takes. */
  queue_ms?: number;
  /** 30 s at Google's. */
  preemption_notice_ms?: number;
  log?: (line: LogLine) => void;
};

export type StoredInfo = ObjectInfo & {bucket: string};

export type LocalCloud = Where & {
  /** Token that a client sends as `Authorization: Bearer` to write. */
  token: string;
  port: number;
  /** Does what `gleaner local fault KIND TARGET` says, and answers with what was done. */
  fault(kind: string, target: string): Promise<string>;
  /** Called right after an object is finalised; the answer ends it. */
  onObject(listener: (object: StoredInfo) => void): () => void;
  /** Ends every VM and the functions. What is on disk goes on with the next cloud in this folder. */
  close(): Promise<void>;
  /** Resolves when the cloud is closed, by `close` or by POST /_local/shutdown. */
  closed: Promise<void>;
};
