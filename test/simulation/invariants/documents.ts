/** Every document ends when it should, and keeps the fields that the next release has written. */
import type {Document} from '../../../shared/ports.ts';
import {COUNTED_TOMORROW} from '../code.ts';
import type {Context} from '../context.ts';
import type {Lease} from './leases.ts';
import type {Violations} from './violations.ts';

const A_WEEK_MS = 7 * 86_400_000;

/** Kinds of documents whose number only grows, so each document must have an end. */
const PASSING = ['events', 'control', 'workers/attempts'];

export class Documents {
  readonly #context: Context;
  readonly #violations: Violations;

  constructor(context: Context, violations: Violations) {
    this.#context = context;
    this.#violations = violations;
  }

  onCommit(kind: string, path: string, before: Document | undefined, after: Document): void {
    const isKeptFor_ms = Date.parse(String(after.expire_at)) - this.#context.clockwork.now;
    this.#violations.check(
      !PASSING.includes(kind) || isKeptFor_ms > A_WEEK_MS,
      () => `${path} is kept until ${after.expire_at}`,
    );
    for (const field of COUNTED_TOMORROW)
      if (after[field] !== undefined) this.#context.see(`the next release counts: ${field}`);
    if (before) this.#checkTomorrow(path, before, after);
  }

  /** Today's code keeps what tomorrow's has written. */
  #checkTomorrow(path: string, before: Document, after: Document): void {
    for (const field of COUNTED_TOMORROW.filter(field => before[field] !== undefined))
      this.#violations.check(
        Number(after[field]) >= Number(before[field]),
        () => `${path}: tomorrow's ${field} ${before[field]} became ${after[field]}`,
      );
    const [held, lease] = [before.lease as Lease | null, after.lease as Lease | null];
    const isSame = held?.granted_by && lease?.epoch === held.epoch;
    this.#violations.check(
      !isSame || lease?.granted_by === held.granted_by,
      () => `${path}: tomorrow's word in its lease was lost`,
    );
  }
}
