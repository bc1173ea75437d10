/** In some worlds operators create a second pool, name it in a run and in jobs, and change it by messages and by edits. */
import type {Config} from '../../shared/contracts/settings/config.ts';
import {nameIn} from '../../shared/domain/deployment.ts';
import {hostsOfType, runtimeOf} from '../../shared/domain/fleet/accelerators.ts';
import {slotsOf} from '../../shared/domain/fleet/slots.ts';
import {paths} from '../../shared/domain/names.ts';
import type {Pool} from '../../shared/domain/records/pool.ts';
import type {Document} from '../../shared/ports/ports.ts';
import type {Chance} from '../world/clock.ts';
import {chipsOfHosts, SPOT_V5E_USD} from './conditions/prices.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';

/** Slots of the pool that the ceiling of the deployment has room for. */
const SLOTS = 2;
const GANG_SLOTS = 4;
/** Slices of the larger jobs. */
export const GANG_SLICES = 3;
/** Slots that an edit of the document of the pool adds: the ceiling has no room for them. */
const EDITED_SLOTS = 2;
const MOST_MESSAGES = 4;

/** Type of the TPUs of the pool in worlds with slices: four hosts, and 16 chips. */
const SLICE = 'v5litepod-16';

export function secondPoolOf({deployment}: Pick<Config, 'deployment'>): string {
  return nameIn(deployment, 'second');
}

export function secondSlotsOf({hasGangs}: Pick<Context, 'hasGangs'>): number {
  return hasGangs ? GANG_SLOTS : SLOTS;
}

export class SecondPool {
  readonly name: string;
  readonly #slots: number;
  readonly #context: Context;
  readonly #delivery: Delivery;
  readonly #chance: Chance;
  readonly #isThere: boolean;
  readonly #creation: Document;
  /** True if most jobs run on slices: one pair of slices is enough for each. */
  readonly #isDense: boolean;

  constructor(context: Context, delivery: Delivery) {
    this.#context = context;
    this.#delivery = delivery;
    this.#chance = context.drawsAt('second pool');
    const {config, tpus} = context;
    this.name = secondPoolOf(config);
    this.#isThere = context.hasSecondPool;
    this.#isDense = context.hasSlices && !context.hasGangs;
    this.#slots = secondSlotsOf(context);
    const {provisioning} = config.pool;
    const accelerator = context.hasSlices ? SLICE : config.pool.accelerator;
    const zones = [this.#chance.pick([...tpus.zones.keys()])];
    const drawn = this.#chance.integer(1, SLOTS);
    const workers_per_zone = context.hasGangs ? GANG_SLOTS : drawn;
    const usd = SPOT_V5E_USD * chipsOfHosts(hostsOfType(accelerator));
    const budget = this.#chance.happens(0.2) ? {budget_usd: this.#chance.between(0.1, 1) * usd} : {};
    this.#creation = {
      ...{action: 'pool', pool: this.name, accelerator, provisioning},
      runtime_version: runtimeOf(accelerator),
      ...{zones, workers_per_zone, ...budget},
    };
  }

  /** Plans the creation of the pool, the run that names it, messages and an edit. */
  plan(): void {
    if (!this.#isThere) return;
    const {objects} = this.#context;
    const chance = this.#chance;
    this.#after(chance.between(0, this.#isDense ? 1 : 8), () => this.#delivery.command(this.#creation));
    const run = chance.pick(['run-0', 'run-1', '']);
    const spec = JSON.stringify({pool: this.name});
    // A run has no use for a slice of several hosts.
    if (run !== '' && !this.#context.hasSlices)
      this.#context.after(0, () => void objects.put(`datasets/${run}/run.json`, spec));
    for (let count = chance.integer(0, MOST_MESSAGES); count > 0; count--)
      this.#after(chance.between(2, 25), () => this.#delivery.command(this.#aMessage()));
    if (chance.happens(0.7)) this.#after(chance.between(5, 25), () => this.#edit());
    this.#planScarcity();
  }

  /** In some worlds the zone of the pool has too few slices for the larger jobs, until one or two hours after the storm. */
  #planScarcity(): void {
    const {context, draws} = {context: this.#context, draws: this.#context.drawsOf('gangs')};
    const {zones} = this.#creation as {zones: [string]};
    if (!draws || !context.hasGangs || draws.happens(0.4)) return;
    const zone = context.tpus.zone(zones[0]);
    const [from, minutes] = [draws.between(0, 15), draws.between(60, 130)];
    context.after(from * 60_000, () => void Object.assign(zone, {slices: draws.integer(1, 2)}));
    context.after((from + minutes) * 60_000, () => void Object.assign(zone, {slices: Infinity}));
  }

  #after(minutes: number, run: () => void): void {
    this.#context.after(minutes * 60_000, () => this.#context.isCalm || run());
  }

  #aMessage(): Document {
    const {pool, zones} = this.#creation as {pool: string; zones: string[]};
    const worker = `${pool}-${zones[0]}-0`;
    const workers_per_zone = this.#chance.integer(0, this.#slots);
    return this.#chance.pick<Document>([
      {action: 'scale', pool, workers_per_zone},
      {action: 'scale', pool, zones: [this.#chance.pick([...this.#context.tpus.zones.keys()])]},
      {action: 'pool', pool, workers_per_zone},
      {action: 'recreate', worker},
      {action: 'delete', worker},
    ]);
  }

  /** A person writes more slots into the document than the deployment has room for. */
  #edit(): void {
    const {invariants, store} = this.#context;
    const path = paths.pool(this.name);
    if (!store.peek(path)) return;
    this.#context.note(() => `a person edits ${path}`);
    this.#context.see('a person edits a pool');
    invariants.operatorIntent.onEdit(path);
    void this.#context.edit(async tx => {
      const found = await tx.get(path);
      if (found) tx.set(path, {...found, workers_per_zone: this.#slots + EDITED_SLOTS});
    });
    // Another one shrinks the pool of the deployment, which is allowed all the same.
    if (this.#context.drawsOf('shared month'))
      this.#after(1, () => this.#delivery.command({action: 'scale', workers_per_zone: 1}));
  }

  /** The pool for a new job: this one or that of the deployment. */
  forJob(): {pool?: string; slices?: number} {
    const isNamed = this.#chance.happens(this.#isDense ? 0.9 : 0.5);
    const pool = isNamed && this.#isThere ? this.#find() : undefined;
    if (!pool) return {};
    const isGang = this.#context.hasSlices && pool.workers_per_zone >= SLOTS;
    return {pool: this.name, ...(isGang ? {slices: SLOTS} : {})};
  }

  /** The pool for a job of so many slices; undefined if it refuses the job. */
  forSlices(slices: number): {pool: string; slices: number} | undefined {
    const {workers_per_zone = -1} = this.#find() ?? {};
    const isValid = this.#isThere && (workers_per_zone === 0 || slices <= workers_per_zone);
    return isValid ? {pool: this.name, slices} : undefined;
  }

  #find(): Pool | undefined {
    return this.#context.store.peek(paths.pool(this.name)) as Pool | undefined;
  }

  /** Sends the messages that unfinished work needs: the pool itself, slots, a budget, and workers that were deleted. */
  intervene(): void {
    if (!this.#isThere) return;
    const {config, store} = this.#context;
    const pool = this.#find();
    const {workers_per_zone, zones} = config.pool;
    // The pool of the deployment may have taken the room of this pool.
    if (!pool || pool.workers_per_zone === 0)
      this.#delivery.command({action: 'scale', workers_per_zone, zones});
    if (!pool) {
      this.#delivery.command({...this.#creation, budget_usd: null});
      return;
    }
    // A job of several slices needs all slots.
    const least = this.#context.hasSlices ? this.#slots : 1;
    if (pool.workers_per_zone < least || pool.workers_per_zone > this.#slots || pool.budget_usd !== null)
      this.#delivery.command({action: 'scale', pool: this.name, workers_per_zone: least, budget_usd: null});
    for (const {name} of slotsOf(pool))
      if (store.peek(paths.worker(name))?.held) this.#delivery.command({action: 'recreate', worker: name});
  }
}
