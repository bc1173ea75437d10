/** The weather of a zone for a pool: what its requests and its TPUs met, by day and accelerator, for a week. */
import {z} from 'zod';
import {count, dollars, emptyOf, stored, text} from '../fields.ts';
import {iso, msOf} from '../time.ts';

const counts = {
  tries: count,
  refusals: count,
  /** Nodes that became READY, and the seconds from their requests until then. */
  given: count,
  wait_s: count,
  /** Nodes that are gone, the seconds for which they were READY, and those that Cloud TPU took. */
  lives: count,
  life_s: count,
  preemptions: count,
  usd: dollars,
  tokens: count,
};

const weatherDay = stored({day: text, accelerator: text, ...counts});
export type WeatherDay = z.infer<typeof weatherDay>;
export type Counts = Pick<WeatherDay, keyof typeof counts>;
export const weatherField = z.array(weatherDay);

const NAMES = Object.keys(counts) as (keyof Counts)[];
export const CLEAR: Counts = emptyOf(counts);
const KEPT_MS = 7 * 86_400_000;

export function addCounts(one: Counts, other: Partial<Counts>): Counts {
  return Object.fromEntries(NAMES.map(name => [name, one[name] + (other[name] ?? 0)])) as Counts;
}

export function lastWeek(days: readonly WeatherDay[], now: number): WeatherDay[] {
  return days.filter(({day}) => msOf(`${day}T00:00:00.000Z`) > now - KEPT_MS);
}

export function withWeather<Zone extends {weather: WeatherDay[]}>(
  zone: Zone,
  accelerator: string,
  added: Partial<Counts>,
  now: number,
): Zone {
  const day = iso(now).slice(0, 10);
  const isToday = (each: WeatherDay) => each.day === day && each.accelerator === accelerator;
  const today = zone.weather.find(isToday) ?? {day, accelerator, ...CLEAR};
  const others = lastWeek(zone.weather, now).filter(each => !isToday(each));
  return {...zone, weather: [...others, {...today, ...addCounts(today, added)}]};
}
