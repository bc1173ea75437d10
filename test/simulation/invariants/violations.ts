/** Keeps the first violation of a world. Some changes are allowed only on behalf of a certain actor. */
import type {Received} from '../../../shared/domain/records/worker.ts';
import type {Topic} from '../../world/bus.ts';
import type {Facts} from './facts.ts';

/** A request of a worker to worker-api. */
export type WorkerRequest = {
  action: 'hello' | 'lease' | 'heartbeat' | 'release' | 'finish' | 'exec' | 'exec-end';
  loaded?: null;
  worker: string;
  incarnation: number;
  host?: number;
  exec?: string;
  ticket?: string;
  phase?: string;
  progress?: null;
  lease?: {run: string; stream: string; epoch: number} | {job: string; epoch: number} | null;
  outcome?: string;
  failure?: {kind: string; reason: string} | null;
  /** The end of a job. */
  cause?: string | null;
  error?: string | null;
  exit_code?: number | null;
  result?: string | null;
  received?: Received;
  result_object?: null;
  has_artifacts?: boolean;
  ran?: null;
};

/** The lease of a stream that a request names. */
export function streamLeaseOf(request: Pick<WorkerRequest, 'lease'> | undefined) {
  return request?.lease && 'run' in request.lease ? request.lease : undefined;
}

/** The cause of a call: the request of a worker, or a message that is handled since `at`. */
export type Actor =
  | {request: WorkerRequest; isForged?: boolean}
  | {topic: Topic; id: string; at: number; task?: string}
  | undefined;

export class Violations {
  violation: string | undefined;
  /** The cause of the present call. */
  actor: Actor;

  /** Requests that changed a document. A repeated one, or one under an old lease, changes none. */
  readonly changed = new WeakSet<WorkerRequest>();

  onCommit(): void {
    if (this.request) this.changed.add(this.request);
  }

  breach(text: string): void {
    this.violation ??= text;
  }

  /** The request of a worker that caused the present call. */
  get request(): WorkerRequest | undefined {
    return this.actor && 'request' in this.actor ? this.actor.request : undefined;
  }

  /** The forged request that caused the present call. */
  get forged(): WorkerRequest | undefined {
    const isForged = this.actor !== undefined && 'request' in this.actor && this.actor.isForged;
    return isForged ? this.request : undefined;
  }

  /** True if a message on this topic caused the present call. */
  isBy(topic: Topic): boolean {
    return this.actor !== undefined && 'topic' in this.actor && this.actor.topic === topic;
  }

  /** True if an operator caused the present call: by a control message, or by the rebuild that one started. */
  get isForOperator(): boolean {
    const isRebuild = this.actor !== undefined && 'task' in this.actor && this.actor.task === 'rebuild';
    return isRebuild || this.isBy('control');
  }
}

/** Checks some promises of a world. */
export abstract class Check {
  protected readonly context: Facts;
  protected readonly violations: Violations;

  constructor(context: Facts, violations: Violations) {
    this.context = context;
    this.violations = violations;
  }

  onRequest(_request: WorkerRequest): void {}

  /** Called with the paths of a commit after all its documents are written. */
  onCommitted(_paths: readonly string[]): void {}

  /** Called every minute. */
  onMinute(): void {}

  /** Called when the database is lost. */
  onWipe(): void {}

  atTheEnd(): void {}

  protected breach(text: string): void {
    this.violations.breach(text);
  }
}
