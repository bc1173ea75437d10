/** The seed, clock, services, faults, counts and trace that all parts of a world share. */

import {Contention} from '../../shared/contracts/errors.ts';
import type {Config} from '../../shared/contracts/settings/config.ts';
import type {Document, Transaction} from '../../shared/ports/ports.ts';
import type {Failure} from '../world/agent.ts';
import {FakeBucket} from '../world/bucket.ts';
import {aConfig, T0} from '../world/builders.ts';
import {aCatalog} from '../world/catalog.ts';
import {Chance, Clockwork} from '../world/clock.ts';
import {SimStore} from '../world/store.ts';
import {FakeTpus} from '../world/tpus.ts';
import {FAR_REGION, PriceRise} from './bills.ts';
import type {Condition} from './conditions/conditions.ts';
import {CALM, type Faults, MAX_HANG_MINUTES} from './conditions/faults.ts';
import {drawParts, drawsOf, PART_NAMES, type PartName, withNeeds} from './conditions/parts.ts';
import {SPOT_V5E_USD} from './conditions/prices.ts';
import {MINUTE_MS} from './conditions/times.ts';
import type {Submitted} from './invariants/facts.ts';
import {Invariants} from './invariants.ts';
import type {Splice} from './planting/anchors.ts';
import type {Code, Release} from './planting/code.ts';
import {Receiver} from './receiver.ts';
import {secondSlotsOf} from './second-pool.ts';
import type {SharedProject} from './shared-project.ts';

/** Time from the moment when a resync is due until it has registered the streams that it finds. */
const RESYNC_MS = 4 * MINUTE_MS;

const ZONES = ['us-central1-a', 'europe-west4-b', 'asia-east1-c'];
export const WIDE_SLOTS = 7;

/** Parts that a smaller world can leave out, in addition to kinds of faults. */
export const SIMPLER = [
  'queue',
  'budget',
  'second zone',
  'second slot',
  'second run',
  'second stream',
  'long storm',
  ...PART_NAMES,
];

const BROKEN_RUN = 'run-0';

export type Options = {
  /** The parts and faults that the world has for certain, and no other part. */
  condition?: Condition | undefined;
  /** Kinds of faults and parts of `SIMPLER` that this world leaves out. */
  without?: ReadonlySet<string>;
  trace?: boolean;
  /** Numbers of the service calls at which the caller crashes. N is before the effect of call N, N + 0.5 after it. */
  crashes?: ReadonlySet<number>;
  /** Replaces the draws of the seed: one run, this number of slots in each of the zones, and these lines in each stream. */
  plan?: {slots: number; lines: readonly number[]; zones?: number};
  /** Settings in place of those of the simulated worlds. */
  settings?: Readonly<Record<string, string>>;
  /** Name of the deployment; by default the default one. */
  deployment?: string;
  /** The changes of a planted mistake. */
  mistake?: readonly Splice[];
  /** Clock that another world shares. */
  clockwork?: Clockwork;
};

export class Context {
  readonly chance: Chance;
  readonly clockwork: Clockwork;
  readonly store: SimStore;
  readonly objects: FakeBucket;
  /** Why a TPU does no work, in the words of the current release. */
  tpuConstraint: Code['tpuConstraint'] | undefined;
  readonly tpus: FakeTpus;
  /** Documents with a field that no release of the world understands, each with the fields to restore. */
  readonly alone = new Map<string, Document>();
  /** These documents, and those that were restored: they lack the changes of this time. */
  readonly everAlone = new Set<string>();
  /** Runs that ended longer ago than the documents of streams are kept. */
  readonly aged = new Set<string>();
  /** Runs that people sent a message about, or a stream, since then. */
  readonly touched = new Set<string>();
  readonly rise: PriceRise;
  /** Gets notifications; undefined in most worlds. */
  readonly receiver: Receiver | undefined;
  readonly catalog = aCatalog(() => this.rise.skus(this.clockwork.now));
  /** True if the bucket is in another region than every zone. */
  readonly isFar: boolean;
  /** View of Cloud TPU in a project with another deployment. */
  project: SharedProject | undefined;
  readonly config: Config;
  readonly invariants: Invariants;
  /** True if the deployment started with a month budget, which operators may have raised since. */
  readonly hasMonthBudget: boolean;
  /** All contents of each dropped stream object, by name. */
  readonly streams = new Map<string, string[]>();
  /** Contents of stream objects, by name and checksum. */
  readonly contents = new Map<string, string>();
  /** Jobs that people submitted, by id. */
  readonly submitted = new Map<string, Submitted>();
  /** Messages of people, by id. */
  readonly messages = new Map<string, Document>();
  /** Counts of faults, states and messages. See coverage.ts. */
  readonly seen = new Map<string, number>();
  readonly trace: string[] = [];
  readonly options: Options;
  /** A message is delivered again after this time, and then a slow handler runs twice at once. */
  readonly ack_deadline_ms: number;
  /** `storm` has the faults of the first phase of the world. `faults` has the present ones: `storm`, and later `CALM`. */
  faults: Faults = CALM;
  #calm_since_ms = T0;
  #unnoticed_ms = 0;
  storm: Faults = CALM;
  /** True if worker-api answers neither workers nor ticks. */
  isApiOut = false;
  isStoreOut = false;
  /** False if the event of the present object is lost. */
  isNoticed = true;
  /** Zones without a network. */
  readonly cutZones = new Set<string>();
  /** The verb of a service whose permission is missing now. */
  refused: string | undefined;
  /** True if the present call ended a stream, a run or an incarnation. */
  isDangerous = false;
  readonly isWide: boolean;
  readonly hasSecondPool: boolean;
  readonly #seed: number;
  readonly #parts: ReadonlySet<PartName>;

  constructor(seed: number, options: Options) {
    this.chance = new Chance(seed);
    this.#seed = seed;
    this.options = options;
    this.clockwork = options.clockwork ?? new Clockwork(T0);
    this.store = new SimStore(this.clockwork);
    this.objects = new FakeBucket(() => this.clockwork.now);
    this.tpus = new FakeTpus(this);
    this.#parts = new Set(withNeeds(options.condition?.parts ?? drawParts(seed)));
    this.isWide = this.#has('wide');
    this.rise = new PriceRise(this.drawsOf('dearer TPUs'));
    this.isFar = this.#has('far bucket');
    const receiver = this.drawsOf('receiver');
    this.receiver = receiver && new Receiver(this, receiver);
    this.hasSecondPool = this.#has('second pool');
    this.store.isPessimistic = this.chance.happens(this.isWide ? 0.7 : 0.2);
    this.ack_deadline_ms = this.chance.pick([1, 10]) * MINUTE_MS;
    const drawn = this.isWide ? ZONES : ZONES.slice(0, this.count('second zone', 2));
    const zones = options.plan ? ZONES.slice(0, options.plan.zones ?? 1) : drawn;
    for (const zone of zones) this.tpus.zone(zone);
    const slots = this.isWide ? WIDE_SLOTS : this.count('second slot', 2);
    this.config = aConfig({
      ...(options.deployment
        ? {GLEANER_DEPLOYMENT: options.deployment, GLEANER_STORE: `firestore:${options.deployment}`}
        : {}),
      GLEANER_ZONES: zones.join(','),
      // Twice as often as by default: a world lasts a few hours.
      GLEANER_AUDIT_S: '900',
      GLEANER_WORKERS_PER_ZONE: String(options.plan?.slots ?? slots),
      ...(this.isFar ? {GLEANER_REGION: FAR_REGION} : {}),
      ...(this.receiver ? {GLEANER_NOTIFY: 'json'} : {}),
      ...this.#budget(),
      ...this.#ceilings(zones.length * (options.plan?.slots ?? slots)),
      GLEANER_PROVISIONING: this.#provisioning(),
      ...this.#instances(),
      ...options.settings,
    });
    this.tpus.deployment = this.config.deployment;
    this.hasMonthBudget = this.config.ceilings.max_budget_usd !== null;
    this.invariants = new Invariants(this);
  }

  /** In some worlds the budget of the pool is spent after some minutes of one TPU, and is removed in the calm. */
  #budget(): Record<string, string> {
    const [isLimited, hours] = [this.chance.happens(0.2), this.chance.between(0.05, 1)];
    return (isLimited || this.#has('small budget')) && this.hasPart('budget')
      ? {GLEANER_BUDGET_USD: (hours * SPOT_V5E_USD).toFixed(3)}
      : {};
  }

  /** In some worlds the deployment limits its workers to the first size of the pool, or has a small month budget. */
  #ceilings(workers: number): Record<string, string> {
    const [hasWorkerLimit, hasMonthBudget, hours] = [
      this.chance.happens(0.3),
      this.chance.happens(0.1),
      this.chance.between(0.05, 1),
    ];
    if (this.options.plan) return {};
    const shared = this.drawsOf('shared month');
    const month_hours = shared?.between(0.3, 1.5) ?? (hasMonthBudget ? hours : undefined);
    return {
      ...(hasWorkerLimit
        ? {GLEANER_MAX_WORKERS: String(workers + (this.hasSecondPool ? secondSlotsOf(this) : 0))}
        : {}),
      ...(month_hours !== undefined && !this.options.without?.has('budget')
        ? {GLEANER_MAX_BUDGET_USD: (month_hours * SPOT_V5E_USD).toFixed(3)}
        : {}),
    };
  }

  #provisioning(): string {
    const provisioning = this.chance.pick(['node', 'node', 'queued-resource', 'auto']);
    if (!this.hasPart('queue')) return 'node';
    this.see(`provisioning: ${provisioning}`);
    return provisioning;
  }

  #instances(): Record<string, string> {
    if (!this.#has('instances')) return {};
    return {
      ...{GLEANER_PROVIDER: 'compute-engine', GLEANER_PROVIDERS: 'tpu-api,compute-engine'},
      ...{GLEANER_PROVISIONING: 'node', GLEANER_RUNTIME_VERSION: 'ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e'},
    };
  }

  /** True if the second pool has slices of several hosts. */
  get hasSlices(): boolean {
    return this.hasSecondPool && this.drawsOf('slices') !== undefined;
  }

  /** True if that pool has room for a job of three slices beside another one. */
  get hasGangs(): boolean {
    return this.hasSlices && this.drawsOf('gangs') !== undefined;
  }

  /** False if the world leaves the part out, or has a plan in place of its draws. */
  hasPart(part: string): boolean {
    return !this.options.plan && !this.options.without?.has(part);
  }

  /** The draws of a part that only some worlds have; undefined in the others. */
  drawsOf(part: PartName): Chance | undefined {
    return this.#has(part) ? this.drawsAt(part) : undefined;
  }

  drawsAt(part: PartName): Chance {
    return drawsOf(part, this.#seed);
  }

  #has(part: PartName): boolean {
    return this.#parts.has(part) && this.hasPart(part);
  }

  get hasBadImage(): boolean {
    return this.#has('bad image');
  }

  get isBusy(): boolean {
    return this.#has('busy operators');
  }

  get isRolledBack(): boolean {
    return this.#has('roll-back');
  }

  /** Draws a count of at least one. Draws also when the second is left out, so that no other draw changes. */
  count(second: string, most: number): number {
    const count = this.chance.integer(1, most);
    return this.options.without?.has(second) ? 1 : count;
  }

  /** The release that the world begins with. */
  get release(): Release {
    if (this.isWide) return 'small pages';
    return this.drawsOf('tiny pages') ? 'tiny pages' : 'current';
  }

  /** The failure of each load of the run's model, until the calm. */
  modelFailure(run: string): Failure | undefined {
    if (run !== BROKEN_RUN || this.isCalm) return undefined;
    if (this.#has('broken model')) return {kind: 'model', reason: 'the model has no such layer'};
    return this.#has('silent hub') ? {kind: 'hub', reason: 'the hub does not answer'} : undefined;
  }

  get isCalm(): boolean {
    return this.faults === CALM;
  }

  /** Ends all faults that are drawn. A call that hangs already may hang for `MAX_HANG_MINUTES` more. */
  endStorm(): void {
    this.faults = CALM;
    this.#calm_since_ms = this.clockwork.now;
  }

  /** True if the calm has lasted for this time after the longest hang of a call. */
  isSettled(longer_ms = 0): boolean {
    return this.isCalm && this.clockwork.now - this.#calm_since_ms > MAX_HANG_MINUTES * MINUTE_MS + longer_ms;
  }

  /** True if the calm has lasted until the end of a resync, whenever the last one was, and no event was lost since then. */
  get isResynced(): boolean {
    const within_ms = this.config.audit_s * 1000 + RESYNC_MS;
    const since_ms = Math.max(this.#calm_since_ms, this.#unnoticed_ms);
    return this.isCalm && this.clockwork.now - since_ms > within_ms;
  }

  see(name: string): void {
    this.seen.set(name, (this.seen.get(name) ?? 0) + 1);
  }

  /** Draws whether a fault of this kind happens now, and counts it. */
  strikes(kind: keyof Faults, probability = this.faults[kind]): boolean {
    const strikes = this.chance.happens(probability);
    if (strikes) this.see(`fault: ${kind}`);
    return strikes;
  }

  minutes(low: number, high: number): number {
    return this.chance.between(low, high) * MINUTE_MS;
  }

  after(delay_ms: number, run: () => void): void {
    this.clockwork.after(delay_ms, run);
  }

  /** Changes documents as a person does, again as long as another transaction holds them. */
  async edit(work: (tx: Transaction) => Promise<void>): Promise<void> {
    for (;;) {
      try {
        await this.store.edit(work);
        return;
      } catch (error) {
        if (!(error instanceof Contention)) throw error;
        await new Promise<void>(resolve => this.after(1000, resolve));
      }
    }
  }

  /** Puts a stream object into the bucket. Without `isNoticed` its event is lost. */
  drop(name: string, text: string, isNoticed = true): void {
    this.isNoticed = isNoticed;
    if (!isNoticed) this.#unnoticed_ms = this.clockwork.now;
    this.touched.add(name.split('/')[1] ?? '');
    const known = this.streams.get(name) ?? [];
    this.streams.set(name, known.includes(text) ? known : [...known, text]);
    const {crc32c} = this.objects.put(name, text);
    this.contents.set(`${name}#${crc32c}`, text);
    this.isNoticed = true;
  }

  /** True if the object was dropped after its run was stopped. Such a stream is ignored, because a stop is final. */
  isTooLate(run: Document | undefined, object: string): boolean {
    const created_at = this.objects.info(object)?.created_at;
    return typeof run?.stopped_at === 'string' && created_at !== undefined && created_at > run.stopped_at;
  }

  /** Names of the runs with a dropped stream. */
  runs(): Set<string> {
    return new Set([...this.streams.keys()].map(name => name.split('/')[1] ?? ''));
  }

  note(text: () => string): void {
    if (!this.options.trace) return;
    const seconds = ((this.clockwork.now - T0) / 1000).toFixed(2);
    this.trace.push(`${seconds.padStart(9)} s  ${text()}`);
  }
}
