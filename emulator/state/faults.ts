import {LocalCloudError} from '../http/errors.ts';
import type {CloudDatabase} from './database.ts';
import {zones} from './zones.ts';

/** Faults of nodes and queued resources happen once. Faults of zones and events last until `clear`. */
const nodeFaults = [
  ...(['preempt', 'preempt-with-notice', 'maintenance', 'vanish'] as const),
  // The TPU stays as it is.
  ...(['dead', 'restart', 'cut'] as const),
] as const;
const queueFaults = ['suspend', 'fail'] as const;
/** `seconds`: default of a fault that takes time. */
type ZoneEffect = {seconds?: number; effect: (zone: string, seconds: number) => string};
const zoneFaults = {
  stockout: {effect: zone => `${zone} has no more capacity until`},
  quota: {effect: zone => `the quota in ${zone} is exhausted until`},
  rate: {effect: zone => `creates in ${zone} exceed the limit of a minute until`},
  unreachable: {effect: zone => `${zone} does not answer until`},
  'slow-create': {seconds: 30, effect: (zone, seconds) => `creates in ${zone} take ${seconds} s until`},
  'endless-create': {effect: zone => `creates in ${zone} never end, also after`},
  'slow-boot': {
    seconds: 30,
    effect: (zone, seconds) => `the last host of each TPU in ${zone} boots ${seconds} s late until`,
  },
  'late-failure': {seconds: 5, effect: (zone, seconds) => `creates in ${zone} fail after ${seconds} s until`},
} satisfies Record<string, ZoneEffect>;
const eventFaults = ['drop', 'double', 'reorder'] as const;

export type QueueFault = (typeof queueFaults)[number];
export type NodeFault = (typeof nodeFaults)[number];
export type ZoneFault = keyof typeof zoneFaults;
export type EventFault = (typeof eventFaults)[number];
export type FaultKind = NodeFault | QueueFault | ZoneFault | EventFault;
export const FAULT_KINDS = [
  ...nodeFaults,
  ...queueFaults,
  ...(Object.keys(zoneFaults) as ZoneFault[]),
  ...eventFaults,
];

export type Fault = {kind: string; target: string; amount: number | null};

/** Output of `gleaner local fault help`. */
export const faultHelp = `  preempt NAME                 preempts a TPU: its VM stops, and the TPU stays listed as PREEMPTED
  preempt-with-notice NAME     notifies the VM of a TPU first, as Google does, and preempts the TPU later
  maintenance NAME             announces a maintenance in the metadata of a TPU's VM, and preempts the TPU later
  vanish NAME                  removes a TPU and its VM
  dead NAME                    stops the VM of a TPU; the TPU stays READY
  restart NAME                 stops the VM of a TPU, and boots it again on its disk
  cut NAME[=SECONDS]           blocks the requests of a TPU to worker-api (default 60 s)
  suspend NAME                 suspends a queued resource: its node is deleted and gets no replacement
  fail NAME                    fails a queued resource, which stays FAILED until its deletion
  stockout ZONE                fails creates in a zone with "no more capacity"; queued resources wait
  quota ZONE                   refuses creates in a zone with an exhausted quota
  rate ZONE                    refuses creates in a zone, as Google does when a project has made too many in a minute
  unreachable ZONE             answers requests to a zone with 503, and lists the zone as unreachable
  slow-create ZONE[=SECONDS]   delays creates in a zone (default 30 s)
  endless-create ZONE          keeps creates in a zone open for ever; no queued resource becomes ACTIVE
  slow-boot ZONE[=SECONDS]     boots the last host of each new TPU in a zone late (default 30 s)
  late-failure ZONE[=SECONDS]  fails creates in a zone after a delay (default 5 s)
  drop TARGET[=RATE]           drops events; TARGET is object, document, a topic or all; RATE is 0 to 1 (default 1)
  double TARGET[=RATE]         delivers events twice
  reorder TARGET[=RATE]        delivers events late and in another order
  clear [KIND|all]             ends lasting faults, which are those of zones and events
NAME-w-1 in place of NAME is host 1 of a TPU of several hosts. Only preempt and vanish take the whole TPU.
ZONE is a zone or all.`;

/** Duration of a cut without one. */
const CUT_S = 60;

/** Name of the target of a fault of nodes, and the duration of a cut, such as `NAME=30`. */
export function nodeTargetOf(kind: NodeFault, target: string): {name: string; cut_s: number} {
  const [name = '', seconds] = target.split(/=(.*)/s);
  if (seconds !== undefined && !(kind === 'cut' && Number(seconds) > 0))
    throw badFault(`Bad amount "${seconds}" for ${kind}`);
  return {name, cut_s: Number(seconds ?? CUT_S)};
}

export function badFault(reason: string): LocalCloudError {
  return new LocalCloudError('bad-fault', `${reason}; \`gleaner local fault help\` lists the faults`);
}

export function isQueueFault(word: string): word is QueueFault {
  return includes(queueFaults, word);
}

function isZoneFault(word: string): word is ZoneFault {
  return Object.hasOwn(zoneFaults, word);
}

function includes<T extends string>(list: readonly T[], word: string): word is T {
  return (list as readonly string[]).includes(word);
}

/** Lasting faults. The database keeps them when the cloud restarts. */
export class Faults {
  readonly #database: CloudDatabase;
  readonly #event_targets: string[];

  /** `targets`: targets of event faults besides `object`. */
  constructor(database: CloudDatabase, targets: string[]) {
    this.#database = database;
    this.#event_targets = ['object', ...targets];
  }

  list(): Fault[] {
    return this.#database.all('SELECT * FROM faults ORDER BY kind, target');
  }

  /** Sets a lasting fault and returns a sentence about its effect; undefined for a fault of a node or a queued resource. */
  set(kind: string, text: string): string | undefined {
    if (includes(nodeFaults, kind) || isQueueFault(kind)) return undefined;
    if (kind === 'clear') return this.#clear(text === '' ? 'all' : text);
    const [target = '', amount] = text.split(/=(.*)/s);
    if (isZoneFault(kind)) return this.#setZone(kind, target === '' ? 'all' : target, amount);
    if (includes(eventFaults, kind)) return this.#setEvent(kind, target === '' ? 'all' : target, amount);
    throw badFault(`Unknown fault "${kind}"`);
  }

  /** Amount of a fault in a zone; undefined if the fault is not set. */
  zone(kind: ZoneFault, zone: string): number | undefined {
    return this.#amount(kind, zone);
  }

  /** Probability of a fault for an event of the target, 0 to 1. */
  rate(kind: EventFault, target: string): number {
    return this.#amount(kind, target) ?? 0;
  }

  #amount(kind: string, target: string): number | undefined {
    const sql = `SELECT * FROM faults WHERE kind = ? AND target IN (?, 'all') ORDER BY target = 'all'`;
    const row = this.#database.get<Fault>(sql, kind, target);
    return row && (row.amount ?? 1);
  }

  #put(kind: string, target: string, amount: number): void {
    this.#database.run('INSERT OR REPLACE INTO faults VALUES (?, ?, ?)', kind, target, amount);
  }

  #setZone(kind: ZoneFault, target: string, amount: string | undefined): string {
    if (target !== 'all' && !zones.includes(target)) {
      throw badFault(`Unknown zone "${target}"; a zone is all or one of ${zones.join(', ')}`);
    }
    const {seconds, effect}: ZoneEffect = zoneFaults[kind];
    const value = amount === undefined ? (seconds ?? 1) : Number(amount);
    if (!(value > 0) || (amount !== undefined && seconds === undefined))
      throw badFault(`Bad amount "${amount}" for ${kind}`);
    this.#put(kind, target, value);
    return `${effect(target === 'all' ? 'every zone' : target, value)} \`clear ${kind}\``;
  }

  #setEvent(kind: EventFault, target: string, amount: string | undefined): string {
    if (target !== 'all' && !this.#event_targets.includes(target)) {
      throw badFault(
        `Unknown target "${target}" for ${kind}; a target is all or one of ${this.#event_targets.join(', ')}`,
      );
    }
    const rate = amount === undefined ? 1 : Number(amount);
    if (amount === '' || !(rate >= 0 && rate <= 1))
      throw badFault(`Bad rate "${amount}" for ${kind}; a rate is 0 to 1`);
    this.#put(kind, target, rate);
    const done = {drop: 'are dropped', double: 'arrive twice', reorder: 'arrive in another order'}[kind];
    return `${rate * 100} % of ${target === 'all' ? 'all' : target} events ${done} until \`clear ${kind}\``;
  }

  #clear(kind: string): string {
    if (kind === 'all') {
      const count = this.#database.run('DELETE FROM faults');
      return `cleared ${count} fault${count === 1 ? '' : 's'}`;
    }
    if (!isZoneFault(kind) && !includes(eventFaults, kind)) throw badFault(`Cannot clear "${kind}"`);
    return `cleared ${this.#database.run('DELETE FROM faults WHERE kind = ?', kind)} × ${kind}`;
  }
}
