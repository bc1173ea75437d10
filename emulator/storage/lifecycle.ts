/** Lifecycle rules of the data bucket, the same as in terraform/buckets.tf. Google applies rules once a day, so a little late. */
import type {ObjectTable} from './objects.ts';
import type {StoredObject} from './resource.ts';

const DAY_MS = 86_400_000;
const SWEEP_MS = 60_000;
const PAGE = 1000;

export type Rule = {prefix: string; age?: number; days_since_custom_time?: number};

export const RULES: readonly Rule[] = [
  {prefix: 'partials/', age: 30},
  {prefix: 'activations/', days_since_custom_time: 1},
  {prefix: 'code/doctor/', age: 1},
];

/** True if a rule deletes the object. Rules by custom time do not apply to an object without one. */
export function isExpired(
  {name, created_at, fields}: Pick<StoredObject, 'name' | 'created_at' | 'fields'>,
  now: number,
): boolean {
  const isOlder = (at: string | undefined, days: number | undefined) =>
    at !== undefined && days !== undefined && now - Date.parse(at) >= days * DAY_MS;
  return RULES.some(
    ({prefix, age, days_since_custom_time}) =>
      name.startsWith(prefix) &&
      (isOlder(created_at, age) || isOlder(fields.customTime, days_since_custom_time)),
  );
}

/** Deletes the objects of every bucket that have expired by a rule. Returns their names. */
export async function sweepExpired(objects: ObjectTable, now: number): Promise<string[]> {
  const expired: string[] = [];
  for (const {name: bucket} of objects.buckets())
    for (const {prefix} of RULES) {
      for (let after: string | undefined = ''; after !== undefined; ) {
        const page: StoredObject[] = objects.page(bucket, {after, prefix, start: '', end: ''}, PAGE);
        for (const object of page.filter(each => isExpired(each, now))) {
          await objects.delete(bucket, object.name, {}, object.generation);
          expired.push(`${bucket}/${object.name}`);
        }
        after = page.length === PAGE ? page.at(-1)?.name : undefined;
      }
    }
  return expired;
}

/** Sweeps every minute, until the returned function is called. */
export function startSweeps(
  objects: ObjectTable,
  trouble: (error: unknown, where: string) => void,
): () => void {
  const timer = setInterval(() => {
    sweepExpired(objects, Date.now()).catch(error => trouble(error, 'lifecycle rules'));
  }, SWEEP_MS);
  timer.unref();
  return () => clearInterval(timer);
}
