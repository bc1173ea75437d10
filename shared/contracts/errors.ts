import type {Refusal} from '../domain/worker/provider-states.ts';

/** A document that Firestore would not take, or that we could not read back as it was. */
export class InvalidDocument extends Error {
  override name = 'InvalidDocument';
}

/** `Transaction.create` met a document that is already there. */
export class AlreadyExists extends Error {
  override name = 'AlreadyExists';
}

/** A transaction read after it had written: Firestore cannot do that, so no adapter does. */
export class ReadAfterWrite extends Error {
  override name = 'ReadAfterWrite';
}

/** Other writers won every attempt of a transaction; the caller tries again later. */
export class Contention extends Error {
  override name = 'Contention';
}

/** What Cloud TPU refused, in our words. `zone` is where; `kind` says what the control plane does next. */
export class TpuError extends Error {
  override name = 'TpuError';
  readonly kind: Refusal;
  readonly zone: string;
  constructor(kind: Refusal, zone: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
    this.zone = zone;
  }
}

const MOST_SAID = 5000;

/**
 * Input that can never succeed: it is recorded once with its reason and acknowledged.
 * Every other error leaves the function, and the platform delivers the event again.
 * A reason quotes what came from outside, and is made to be what a document can hold.
 */
export class Rejected extends Error {
  override name = 'Rejected';
  constructor(message: string, options?: ErrorOptions) {
    const text = message.length > MOST_SAID ? `${message.slice(0, MOST_SAID)} …` : message;
    super(text.toWellFormed(), options);
  }
}

/** An object is larger than its reader allows. */
export class ObjectTooLarge extends Rejected {
  override name = 'ObjectTooLarge';
}
