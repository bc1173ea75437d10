/** The churn of a zone for a pool: how its requests and its TPUs fared, by day and accelerator, for a week. */
import {z} from 'zod';
import {count, dollars, emptyOf, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

const counts = {
  tries: count,
  refusals: count,
  /** Nodes that became READY, and the seconds that they took from request to READY. */
  given: count,
  wait_s: count,
  /** Nodes that are gone, the seconds for which they were READY, and how many of them Cloud TPU preempted. */
  lives: count,
  life_s: count,
  preemptions: count,
  usd: dollars,
  tokens: count,
};

const churnDay = stored({day: text, accelerator: text, ...counts});
export type ChurnDay = z.infer<typeof churnDay>;
export type Counts = Pick<ChurnDay, keyof typeof counts>;
export const churnField = z.array(churnDay);

const NAMES = Object.keys(counts) as (keyof Counts)[];
export const CLEAR: Counts = emptyOf(counts);
const KEPT_MS = 7 * 86_400_000;

export function addCounts(one: Counts, other: Partial<Counts>): Counts {
  return Object.fromEntries(NAMES.map(name => [name, one[name] + (other[name] ?? 0)])) as Counts;
}

export function lastWeek(days: readonly ChurnDay[], now: number): ChurnDay[] {
  return days.filter(({day}) => msOf(`${day}T00:00:00.000Z`) > now - KEPT_MS);
}

export function withChurn<Zone extends {churn: ChurnDay[]}>(
  zone: Zone,
  accelerator: string,
  added: Partial<Counts>,
  now: number,
): Zone {
  const day = iso(now).slice(0, 10);
  const isToday = (each: ChurnDay) => each.day === day && each.accelerator === accelerator;
  const today = zone.churn.find(isToday) ?? {day, accelerator, ...CLEAR};
  const others = lastWeek(zone.churn, now).filter(each => !isToday(each));
  return {...zone, churn: [...others, {...today, ...addCounts(today, added)}]};
}
