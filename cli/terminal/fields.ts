/** Fields that the options of a command give. */
import {UsageError} from '../../client/text/errors.ts';

/** The fields that have a value, also null. */
export function given<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** The fields that have a value. Throws `UsageError` without one. */
export function requireChange<T extends object>(fields: T): Partial<T> {
  const changed = given(fields);
  if (Object.keys(changed).length > 0) return changed;
  const options = Object.keys(fields).map(name => `--${name.replaceAll('_', '-')}`);
  throw new UsageError(`There is no change: give ${options.slice(0, -1).join(', ')} or ${options.at(-1)}`);
}
