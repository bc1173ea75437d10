/** A TPU as the answers of `gleaner tpus` name it. */
import {accrue, totalOf} from '../../shared/domain/billing/cost.ts';
import type {Pool} from '../../shared/domain/fleet/pool.ts';
import {waitText} from '../../shared/domain/waiting/constraint.ts';
import {hasEnded, type Worker} from '../../shared/domain/worker/worker.ts';
import {explainTpu} from '../explain.ts';
import type {Answers} from '../json/index.ts';
import {tpuStatus} from '../screen/tpu-status.ts';
import {counted, dollarText} from '../terminal/format.ts';

/** Fields of a TPU. `is_billed`: its node exists, as far as ticks can tell. `cost_usd`: dollars of this incarnation until now. */
export type TpuRow = Listed['tpus'][number];
type Listed = Answers['tpus list'];

export function rowOf(worker: Worker, pools: readonly Pool[], now: number): TpuRow {
  const pool = pools.find(({pool}) => pool === worker.pool);
  const {name, phase, zone, incarnation, work, phase_since_at, usd_per_hour, heartbeat_at, held} = worker;
  const why = explainTpu(worker, pool, now);
  return {
    tpu: name,
    status: tpuStatus(worker),
    phase,
    pool: worker.pool,
    zone,
    accelerator: pool?.accelerator ?? null,
    incarnation,
    work,
    activity: worker.activity,
    boot_step: worker.boot_step,
    since_at: phase_since_at,
    heartbeat_at,
    usd_per_hour,
    is_billed: isBilled(worker),
    cost_usd: totalOf(accrue(worker, now).costs),
    held,
    reason: why ? waitText(why) : null,
    last_error: errorOf(worker, pool),
  };
}

/** The last error of a TPU, unless it is healed: the zone that refused the TPU gives TPUs again, or nothing waits for one. */
function errorOf(worker: Worker, pool: Pool | undefined): string | null {
  if (worker.refused && !pool?.zones_wait[worker.zone]) return null;
  return worker.last_error ?? (hasEnded(worker) ? worker.last_death : null);
}

function isBilled({phase, ready_at}: Worker): boolean {
  return ready_at !== null && phase !== 'gone';
}

/** Sums over TPUs that are not gone. A TPU of unknown price adds nothing to the dollars. */
export function totalsOf(rows: readonly TpuRow[]): Listed['totals'] {
  const living = rows.filter(({phase}) => phase !== 'gone');
  const billed = living.filter(({is_billed}) => is_billed);
  return {
    tpus: living.length,
    working: living.filter(({work}) => work !== null).length,
    billed: billed.length,
    usd_per_hour: billed.reduce((sum, {usd_per_hour}) => sum + (usd_per_hour ?? 0), 0),
    unknown_prices: billed.filter(({usd_per_hour}) => usd_per_hour === null).length,
  };
}

/** `3 TPUs, 2 at work, $2.40 an hour`. */
export function totalsText({tpus, working, usd_per_hour, unknown_prices}: Listed['totals']): string {
  const unknown =
    unknown_prices === 0 ? '' : `, and the price of ${counted(unknown_prices, 'TPU')} is unknown`;
  return `${counted(tpus, 'TPU')}, ${working} at work, ${dollarText(usd_per_hour)} an hour${unknown}`;
}

/** `$1.20 an hour`, or that the price is unknown. */
export function hourText(usd_per_hour: number | null): string {
  return usd_per_hour === null ? 'unknown price' : `${dollarText(usd_per_hour)} an hour`;
}
