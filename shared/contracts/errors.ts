import type {Contradiction} from '../domain/timeline.ts';
import type {Refusal} from '../domain/worker/provider-states.ts';

/** An error with the name of its class. */
class NamedError extends Error {
  override name = this.constructor.name;
}

/** A document that Firestore would refuse, or that we could not read back unchanged. */
export class InvalidDocument extends NamedError {}

export class AlreadyExists extends NamedError {}

/** A transaction read after its first write. Firestore cannot do that, so no adapter allows it. */
export class ReadAfterWrite extends NamedError {}

/** Other writers won against every attempt of a transaction. The caller tries again later. */
export class Contention extends NamedError {}

/** A refusal by Cloud TPU. The control plane decides its next step by `kind`. `rate`: too many calls of the project, in whichever zones. */
export class TpuError extends NamedError {
  readonly kind: Refusal | 'rate';
  readonly zone: string;
  constructor(kind: Refusal | 'rate', zone: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
    this.zone = zone;
  }
}

/** A Google service refused or did not answer. The message is one sentence for a person: the subject, the cause, the remedy. */
export class ServiceError extends NamedError {}

/** Variables of the environment are missing or wrong. The message names each of them. */
export class ConfigError extends NamedError {}

/**
 * A notification that its receiver did not accept. `refused`: the receiver refused this notification but may accept others; otherwise it
 * accepts none now. The message names only the host of the receiver, because the rest of its address may be a secret.
 */
export class Undelivered extends NamedError {
  readonly refused: boolean;
  constructor(refused: boolean, message: string, options?: ErrorOptions) {
    super(message, options);
    this.refused = refused;
  }
}

/** A caller that proves no account of worker-api (401), or an account that may not make this request (403). */
export class CallerRefused extends NamedError {
  readonly status: 401 | 403;
  constructor(status: 401 | 403, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

const MOST_SAID = 5000;

/**
 * Input that can never succeed. It is recorded once with the reason, and acknowledged.
 * Every other error leaves the function, and the platform delivers the event again.
 * A reason quotes foreign text, so the constructor shortens it to fit into a document.
 */
export class Rejected extends NamedError {
  constructor(message: string, options?: ErrorOptions) {
    const text = message.length > MOST_SAID ? `${message.slice(0, MOST_SAID)} …` : message;
    super(text.toWellFormed(), options);
  }
}

/** An object of the control plane has content that the control plane did not write. */
export class Contradicted extends Rejected {
  readonly contradiction: Contradiction;
  constructor(message: string, contradiction: Contradiction) {
    super(message);
    this.contradiction = contradiction;
  }
}

/** A document with a field that this release does not understand. Nothing changes it, because a newer release or a person wrote it. */
export class NotUnderstood extends Rejected {
  readonly document: Readonly<Record<string, unknown>>;
  constructor(path: string, problem: string, document: Readonly<Record<string, unknown>>) {
    const {release} = document;
    const name = typeof release === 'string' ? release : 'unknown';
    super(
      `Failed to read ${path}: ${problem}. Release ${name} or a person wrote it, and it is skipped as invalid: deploy that release, fix the field or delete the document`,
    );
    this.document = document;
  }
}

export class ObjectTooLarge extends Rejected {}
