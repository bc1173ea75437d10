/** The first breach is kept, with its reason. Whose word makes a change says whether it is one. */
import type {Topic} from '../../support/function-calls.ts';

/** A request of a worker to worker-api. */
export type Said = {
  action: 'lease' | 'heartbeat' | 'release';
  worker: string;
  incarnation: number;
  lease?: {run: string; stream: string; epoch: number} | null;
  outcome?: string;
  failure?: {kind: string; reason: string} | null;
};

/** On whose behalf a function makes a call: a message, the beat, or a worker who said something. */
export type Actor = {said: Said} | {topic: Topic; id: string; task?: string} | undefined;

export class Violations {
  violation: string | undefined;
  /** On whose behalf the present call is made. */
  actor: Actor;

  check(holds: boolean, breach: () => string): void {
    if (!holds) this.violation ??= breach();
  }

  /** The word of the worker on whose behalf the present call is made. */
  get said(): Said | undefined {
    return this.actor && 'said' in this.actor ? this.actor.said : undefined;
  }

  /** True if the present call is made on behalf of people: for a command, or for the rebuild that one began. */
  get isOrdered(): boolean {
    if (this.actor === undefined || !('topic' in this.actor)) return false;
    return this.actor.topic === 'control' || this.actor.task === 'rebuild';
  }
}
