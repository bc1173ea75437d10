/** What every part of a world shares: its seed, its clock, its services, its faults, and what was seen and noted. */
import type {Config} from '../../shared/config.ts';
import {LIST_PRICES} from '../../shared/core/prices.ts';
import {aConfig, T0} from '../builders.ts';
import {SimObjects, SimTpus} from './cloud.ts';
import {CALM, type Faults} from './faults.ts';
import {Invariants} from './invariants.ts';
import {Chance, Clockwork} from './kernel.ts';
import {SimStore} from './store.ts';

export const MINUTE_MS = 60_000;

export const MOST_CREATES_PER_HOUR = 8;
/** The list price of the default accelerator. */
const SPOT_V5E_USD = LIST_PRICES.v5litepod?.spot_usd ?? Number.NaN;

/** Short limits: a world lives for an hour or two. */
const LIMITS = {
  GLEANER_HEARTBEAT_S: '30',
  GLEANER_LEASE_S: '120',
  GLEANER_SILENT_S: '180',
  GLEANER_STALL_S: '400',
  GLEANER_COMPILE_S: '400',
  GLEANER_LOAD_S: '400',
  GLEANER_CREATE_S: '400',
  GLEANER_BOOT_S: '240',
  GLEANER_SETUP_S: '600',
  GLEANER_DRAIN_S: '300',
  GLEANER_REPAIR_S: '600',
  GLEANER_ASK_AGAIN_S: '150',
  GLEANER_CREATE_WAIT_S: '200',
  GLEANER_CREATES_PER_HOUR: String(MOST_CREATES_PER_HOUR),
};
const ZONES = ['us-central1-a', 'europe-west4-b'];

/** What a world may be made smaller by, besides leaving out kinds of faults. */
export const SIMPLER = ['budget', 'second zone', 'second slot', 'second run', 'second stream', 'long storm'];

export type Options = {
  /** Kinds of faults, and things of `SIMPLER`, that this world does not have. */
  without?: ReadonlySet<string>;
  trace?: boolean;
  /** The calls of services, counted over all functions, at which the caller dies: N before it is done, N + 0.5 after. */
  crashes?: ReadonlySet<number>;
};

export class Setting {
  readonly chance: Chance;
  readonly clockwork = new Clockwork(T0);
  readonly store = new SimStore();
  readonly objects: SimObjects;
  readonly tpus: SimTpus;
  readonly config: Config;
  readonly invariants: Invariants;
  /** What every stream object holds. */
  readonly streams = new Map<string, string>();
  /** What happened at least once: faults, node states, phases. */
  readonly seen = new Set<string>();
  readonly trace: string[] = [];
  readonly options: Options;
  faults: Faults = CALM;

  constructor(seed: number, options: Options) {
    this.chance = new Chance(seed);
    this.options = options;
    this.objects = new SimObjects(this.clockwork);
    this.tpus = new SimTpus(this);
    const zones = ZONES.slice(0, this.count('second zone', 2));
    for (const zone of zones) this.tpus.zone(zone);
    this.config = aConfig({
      ...LIMITS,
      GLEANER_ZONES: zones.join(','),
      GLEANER_WORKERS_PER_ZONE: String(this.count('second slot', 2)),
      ...this.#budget(),
    });
    this.invariants = new Invariants(this);
  }

  /** In some worlds the pool has money for some minutes of one TPU, and gets more in the calm. */
  #budget(): Record<string, string> {
    const [isPoor, hours] = [this.chance.happens(0.2), this.chance.between(0.05, 1)];
    return isPoor && !this.options.without?.has('budget')
      ? {GLEANER_BUDGET_USD: (hours * SPOT_V5E_USD).toFixed(3)}
      : {};
  }

  /** How many there are of something, at least one. Drawn also when more than one is left out, so that nothing else changes. */
  count(second: string, most: number): number {
    const count = this.chance.integer(1, most);
    return this.options.without?.has(second) ? 1 : count;
  }

  get isCalm(): boolean {
    return this.faults === CALM;
  }

  /** Whether a fault happens here and now. */
  strikes(what: string, probability: number): boolean {
    const strikes = this.chance.happens(probability);
    if (strikes) this.seen.add(what);
    return strikes;
  }

  minutes(low: number, high: number): number {
    return this.chance.between(low, high) * MINUTE_MS;
  }

  after(delay_ms: number, run: () => void): void {
    this.clockwork.after(delay_ms, run);
  }

  /** The runs of which a stream was dropped. */
  runs(): Set<string> {
    return new Set([...this.streams.keys()].map(name => name.split('/')[1] ?? ''));
  }

  note(text: () => string): void {
    if (!this.options.trace) return;
    const seconds = ((this.clockwork.now - T0) / 1000).toFixed(2);
    this.trace.push(`${seconds.padStart(9)} s  ${text()}`);
  }
}
