/** Checks that short-lived documents expire, and that documents keep the fields of the next release. */
import type {Document} from '../../../shared/ports/ports.ts';
import {NEXT_RELEASE_COUNTERS} from '../planting/code.ts';
import type {Lease} from './leases.ts';
import {Check} from './violations.ts';

const WEEK_MS = 7 * 86_400_000;

/** Kinds of documents whose number only grows, so each document must have an expiry. */
const EXPIRING = ['events', 'control', 'workers/attempts', 'execs', 'execs/hosts', 'notices'];

export class Documents extends Check {
  onCommit(kind: string, path: string, before: Document | undefined, after: Document): void {
    const kept_ms = Date.parse(String(after.expire_at)) - this.context.clockwork.now;
    if (EXPIRING.includes(kind) && !(kept_ms > WEEK_MS)) this.breach(`${path} expires at ${after.expire_at}`);
    for (const field of NEXT_RELEASE_COUNTERS)
      if (after[field] !== undefined) this.context.see(`the next release counts: ${field}`);
    if (before && this.context.alone.has(path))
      this.breach(`${path} was written while no release understood it`);
    if (before) this.#checkNextReleaseFields(kind, path, before, after);
  }

  /** The current release keeps the fields that the next release wrote. */
  #checkNextReleaseFields(kind: string, path: string, before: Document, after: Document): void {
    for (const field of NEXT_RELEASE_COUNTERS.filter(field => before[field] !== undefined))
      if (!(Number(after[field]) >= Number(before[field])))
        this.breach(`${path}: ${field} of the next release changed from ${before[field]} to ${after[field]}`);
    const [was, is] = [before, after].map(({next_release}) =>
      Number((next_release as Document)?.writes ?? 0),
    );
    // A task that is opened again is another task. An event that repeats, and a shard in a rebuild, are written as a whole.
    const isSame =
      before.created_at === after.created_at && !['events', 'runs/streams/shards'].includes(kind);
    if (isSame && !(Number(is) >= Number(was)))
      this.breach(`${path}: the field of the next release was written ${was} times, and then ${is} times`);
    if (is !== 0) this.context.see(`the next release writes: ${kind}`);
    const [held, lease] = [before.lease as Lease | null, after.lease as Lease | null];
    const isHeld = held?.granted_by && lease?.epoch === held.epoch;
    if (isHeld && lease?.granted_by !== held.granted_by)
      this.breach(`${path}: its lease lost the field of the next release`);
  }
}
