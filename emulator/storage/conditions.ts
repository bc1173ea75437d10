import {ApiError} from '../http/errors.ts';
import type {StoredObject} from './resource.ts';

const names = [
  'ifGenerationMatch',
  'ifGenerationNotMatch',
  'ifMetagenerationMatch',
  'ifMetagenerationNotMatch',
] as const;

/** Preconditions on the current object of a name. Generation 0 stands for an absent object. */
export type Conditions = Partial<Record<(typeof names)[number], number | undefined>>;

export function wholeNumber(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null || text === '') return undefined;
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) {
    throw new ApiError(400, `Invalid value for ${name}: "${text}" is not a whole number`);
  }
  return value;
}

/** Preconditions of a request. The source of a copy has its own, such as ifSourceGenerationMatch. */
export function conditionsFrom(query: URLSearchParams, of: 'object' | 'source' = 'object'): Conditions {
  const conditions: Conditions = {};
  for (const name of names) {
    const value = wholeNumber(query, of === 'source' ? name.replace('if', 'ifSource') : name);
    if (value !== undefined) conditions[name] = value;
  }
  return conditions;
}

/** First failed precondition; undefined when every precondition holds. */
export function brokenCondition(
  conditions: Conditions,
  object: StoredObject | undefined,
): keyof Conditions | undefined {
  return names.find(name => {
    const now = (name.startsWith('ifMeta') ? object?.metageneration : object?.generation) ?? 0;
    const isSame = conditions[name] === now;
    return conditions[name] !== undefined && isSame === name.endsWith('NotMatch');
  });
}

export function requireConditions(conditions: Conditions, object: StoredObject | undefined): void {
  const broken = brokenCondition(conditions, object);
  if (!broken) return;
  const now = object
    ? `its generation is ${object.generation}.${object.metageneration}`
    : 'there is no such object';
  throw new ApiError(
    412,
    `At least one of the pre-conditions you specified did not hold: ${broken}=${conditions[broken]}, and ${now}`,
  );
}
