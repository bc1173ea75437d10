import type {Contradiction} from '../domain/timeline.ts';
import type {Refusal} from '../domain/worker/provider-states.ts';

/** A document that Firestore would refuse, or that we could not read back unchanged. */
export class InvalidDocument extends Error {
  override name = 'InvalidDocument';
}

export class AlreadyExists extends Error {
  override name = 'AlreadyExists';
}

/** A transaction read after its first write. Firestore cannot do that, so no adapter allows it. */
export class ReadAfterWrite extends Error {
  override name = 'ReadAfterWrite';
}

/** Other writers won against every attempt of a transaction. The caller tries again later. */
export class Contention extends Error {
  override name = 'Contention';
}

/** A refusal by Cloud TPU. The control plane decides its next step by `kind`. */
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

/** A Google service refused or did not answer. The message is one sentence for a person: the subject, the cause, the remedy. */
export class ServiceError extends Error {
  override name = 'ServiceError';
}

/** Variables of the environment are missing or wrong. The message names each of them. */
export class ConfigError extends Error {
  override name = 'ConfigError';
}

/**
 * A notification that its receiver did not accept. `refused`: the receiver refused this notification but may accept others; otherwise it
 * accepts none now. The message names only the host of the receiver, because the rest of its address may be a secret.
 */
export class Undelivered extends Error {
  override name = 'Undelivered';
  readonly refused: boolean;
  constructor(refused: boolean, message: string, options?: ErrorOptions) {
    super(message, options);
    this.refused = refused;
  }
}

/** A caller that proves no account of worker-api (401), or an account that may not make this request (403). */
export class CallerRefused extends Error {
  override name = 'CallerRefused';
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
export class Rejected extends Error {
  override name = 'Rejected';
  constructor(message: string, options?: ErrorOptions) {
    const text = message.length > MOST_SAID ? `${message.slice(0, MOST_SAID)} …` : message;
    super(text.toWellFormed(), options);
  }
}

/** An object of the control plane has content that the control plane did not write. */
export class Contradicted extends Rejected {
  override name = 'Contradicted';
  readonly contradiction: Contradiction;
  constructor(message: string, contradiction: Contradiction) {
    super(message);
    this.contradiction = contradiction;
  }
}

/** A document with a field that this release does not understand. Nothing changes it, because a newer release or a person wrote it. */
export class NotUnderstood extends Rejected {
  override name = 'NotUnderstood';
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

export class ObjectTooLarge extends Rejected {
  override name = 'ObjectTooLarge';
}
