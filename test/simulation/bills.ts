/** In some worlds the price of TPUs triples, and in some the bucket is in another region than the TPUs. */
import {storeCatalog} from '../../shared/control-plane/documents/prices.ts';
import {addSkus, NO_PRICES, type Sku} from '../../shared/domain/billing/catalog.ts';
import {LISTED} from '../../shared/domain/billing/list-prices.ts';
import {iso} from '../../shared/domain/time.ts';
import {T0} from '../world/builders.ts';
import {callAtOnce} from '../world/call.ts';
import {chipSkus} from '../world/catalog.ts';
import type {Chance} from '../world/clock.ts';
import {RISE} from './conditions/prices.ts';
import type {Context} from './context.ts';

const MINUTE_MS = 60_000;
/** No zone of a world is near it. */
export const FAR_REGION = 'southamerica-west1';

/** Price of TPUs in a world: `since_ms` is when Google raises it, and `seen_ms` when the catalog is read. */
export class PriceRise {
  readonly since_ms: number;
  readonly seen_ms: number;

  constructor(chance: Chance | undefined) {
    this.seen_ms = T0 + (chance?.between(4, 25) ?? Number.POSITIVE_INFINITY) * MINUTE_MS;
    this.since_ms = this.seen_ms - (chance?.between(0, 10) ?? 0) * MINUTE_MS;
  }

  /** Hours of the list price that a life costs. */
  hours(from_ms: number, to_ms: number): number {
    const late_ms = Math.max(0, to_ms - Math.max(from_ms, this.since_ms));
    return (to_ms - from_ms + (RISE - 1) * late_ms) / 3_600_000;
  }

  /** The catalog at an instant. */
  skus(now: number): Sku[] {
    const isRaised = now >= this.since_ms;
    return Object.entries(LISTED).flatMap(([key, {usd, spot_usd}]) =>
      chipSkus(
        key,
        isRaised ? {usd: usd * RISE, spot_usd: spot_usd * RISE} : {usd, spot_usd},
        isRaised ? iso(this.since_ms) : undefined,
      ),
    );
  }

  plan(context: Context): void {
    if (!Number.isFinite(this.seen_ms)) return;
    context.after(this.seen_ms - T0, () => {
      context.note(() => 'the price of TPUs triples');
      const now = context.clockwork.now;
      void storeCatalog(context.store.through(callAtOnce), addSkus(NO_PRICES, this.skus(now), now), now);
    });
  }
}
