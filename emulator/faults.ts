import type {CloudDatabase} from './database.ts';
import {LocalCloudError} from './errors.ts';
import {zones} from './zones.ts';

/** Faults of a node happen once, now; the others last until they are cleared. */
const nodeFaults = ['preempt', 'preempt-with-notice', 'vanish', 'dead'] as const;
const queueFaults = ['suspend', 'fail'] as const;
const zoneFaults = [
  ...(['stockout', 'quota', 'unreachable', 'slow-create', 'endless-create', 'late-failure'] as const),
];
const eventFaults = ['drop', 'double', 'reorder'] as const;

export type QueueFault = (typeof queueFaults)[number];
export type NodeFault = (typeof nodeFaults)[number];
export type ZoneFault = (typeof zoneFaults)[number];
export type EventFault = (typeof eventFaults)[number];

export type Fault = {kind: string; target: string; amount: number | null};

/** What `gleaner local fault help` prints. */
export const faultHelp = `  preempt NAME               the TPU is taken away at once, and stays listed as PREEMPTED
  preempt-with-notice NAME   its VM is told first, as Google does
  vanish NAME                the TPU is gone from the list
  dead NAME                  its VM stops, and the TPU stays READY
  suspend NAME               the queued resource is suspended: its node goes, and no other comes
  fail NAME                  the queued resource FAILED, and stays so until it is deleted
  stockout ZONE              creates in the zone end with "no more capacity", and queued resources wait
  quota ZONE                 creates in the zone are refused for quota
  unreachable ZONE           the zone does not answer
  slow-create ZONE[=SECONDS] creates in the zone take so long (default 30)
  endless-create ZONE        creates in the zone never end, and no queued resource is ACTIVE
  late-failure ZONE[=SECONDS] creates in the zone fail after so long (default 5)
  drop TARGET[=RATE]         events never arrive; TARGET is object, a topic, or all; RATE is 0 to 1 (default 1)
  double TARGET[=RATE]       events arrive twice
  reorder TARGET[=RATE]      events arrive late and in another order
  clear [KIND|all]           ends the lasting ones
ZONE may be all.`;

export function badFault(reason: string): LocalCloudError {
  return new LocalCloudError('bad-fault', `${reason}; \`gleaner local fault help\` lists the faults`);
}

export function isQueueFault(word: string): word is QueueFault {
  return includes(queueFaults, word);
}

function includes<T extends string>(list: readonly T[], word: string): word is T {
  return (list as readonly string[]).includes(word);
}

/** The lasting faults, kept on disk: a cloud that was killed comes back as bad as it was. */
export class Faults {
  readonly #database: CloudDatabase;
  readonly #event_targets: string[];

  constructor(database: CloudDatabase, topics: string[]) {
    this.#database = database;
    this.#event_targets = ['object', ...topics];
  }

  list(): Fault[] {
    return this.#database.all('SELECT * FROM faults ORDER BY kind, target');
  }

  /** Sets a lasting fault and says what it does now; undefined when the kind is of a node or a queued resource, not ours. */
  set(kind: string, text: string): string | undefined {
    if (includes(nodeFaults, kind) || isQueueFault(kind)) return undefined;
    if (kind === 'clear') return this.#clear(text === '' ? 'all' : text);
    const [target = '', amount] = text.split(/=(.*)/s);
    if (includes(zoneFaults, kind)) return this.#setZone(kind, target === '' ? 'all' : target, amount);
    if (includes(eventFaults, kind)) return this.#setEvent(kind, target === '' ? 'all' : target, amount);
    throw badFault(`Unknown fault "${kind}"`);
  }

  zone(kind: ZoneFault, zone: string): number | undefined {
    const row = this.#database.get<Fault>(
      `SELECT * FROM faults WHERE kind = ? AND target IN (?, 'all') ORDER BY target = 'all'`,
      kind,
      zone,
    );
    return row && (row.amount ?? 1);
  }

  /** How likely the fault is to befall an event of the target, 0 to 1. */
  rate(kind: EventFault, target: string): number {
    const row = this.#database.get<Fault>(
      `SELECT * FROM faults WHERE kind = ? AND target IN (?, 'all') ORDER BY target = 'all'`,
      kind,
      target,
    );
    return row ? (row.amount ?? 1) : 0;
  }

  #put(kind: string, target: string, amount: number): void {
    this.#database.run('INSERT OR REPLACE INTO faults VALUES (?, ?, ?)', kind, target, amount);
  }

  #setZone(kind: ZoneFault, target: string, amount: string | undefined): string {
    if (target !== 'all' && !zones.includes(target)) {
      throw badFault(`Unknown zone "${target}"; it is all, or one of ${zones.join(', ')}`);
    }
    const seconds: Partial<Record<ZoneFault, number>> = {'slow-create': 30, 'late-failure': 5};
    const isTimed = seconds[kind] !== undefined;
    const value = amount === undefined ? (seconds[kind] ?? 1) : Number(amount);
    if (!(value > 0) || (amount !== undefined && !isTimed))
      throw badFault(`Bad amount "${amount}" for ${kind}`);
    this.#put(kind, target, value);
    const where = target === 'all' ? 'every zone' : target;
    switch (kind) {
      case 'stockout':
        return `${where} has no more capacity until \`clear stockout\``;
      case 'quota':
        return `the quota in ${where} is exhausted until \`clear quota\``;
      case 'unreachable':
        return `${where} does not answer until \`clear unreachable\``;
      case 'slow-create':
        return `creates in ${where} take ${value} s until \`clear slow-create\``;
      case 'endless-create':
        return `creates in ${where} never end, also after \`clear endless-create\``;
      case 'late-failure':
        return `creates in ${where} fail after ${value} s until \`clear late-failure\``;
    }
  }

  #setEvent(kind: EventFault, target: string, amount: string | undefined): string {
    if (target !== 'all' && !this.#event_targets.includes(target)) {
      throw badFault(
        `Unknown target "${target}" for ${kind}; it is all, or one of ${this.#event_targets.join(', ')}`,
      );
    }
    const rate = amount === undefined ? 1 : Number(amount);
    if (amount === '' || !(rate >= 0 && rate <= 1))
      throw badFault(`Bad rate "${amount}" for ${kind}; it is 0 to 1`);
    this.#put(kind, target, rate);
    const done = {drop: 'are dropped', double: 'arrive twice', reorder: 'arrive in another order'}[kind];
    return `${rate * 100} % of ${target === 'all' ? 'all' : target} events ${done} until \`clear ${kind}\``;
  }

  #clear(kind: string): string {
    if (kind === 'all') {
      const count = this.#database.run('DELETE FROM faults');
      return `cleared ${count} fault${count === 1 ? '' : 's'}`;
    }
    if (!includes(zoneFaults, kind) && !includes(eventFaults, kind)) throw badFault(`Cannot clear "${kind}"`);
    return `cleared ${this.#database.run('DELETE FROM faults WHERE kind = ?', kind)} × ${kind}`;
  }
}
