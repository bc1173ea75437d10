/** Options of declared fields, as plain data: `GleanerCommand.fields` adds them. */
import {UsageError} from '../../client/text/errors.ts';
import type {Field, Fields, OwnValues} from '../../shared/domain/records/field.ts';
import {specKeys} from '../../shared/domain/records/spec-keys.ts';
import {
  jsonObject,
  numberOf,
  orNone,
  poolName,
  rowTokens,
  text,
  trueOrFalse,
  whole,
  words,
} from './arguments.ts';

/** Numbers with commas between as a list; one number is a list of one; other text as it is. */
const numbers = (given: string) =>
  /^-?\d+(,-?\d+)*$/.test(given) ? given.split(',').map(Number) : text(given);
const newTokens = whole(1, specKeys.max_seq_length.most - 1);

const OWN: {[Name in keyof OwnValues]?: (given: string) => unknown} = {
  ...{layers: numbers, tokens: numbers, sites: words, names: words, pool: poolName},
  ...{power: rowTokens, variables: jsonObject},
  new_tokens: given => ({max_new_tokens: newTokens(given), temperature: 0}),
  when: given => (given === 'auto' ? given : trueOrFalse(given)),
};

/** `--job-wait-s <s>` for `job_wait_s`. A flag of `hasTruth` says true or false. */
export function optionsOf(all: Fields, hasTruth: boolean) {
  return Object.entries(all).map(([name, field]) => {
    const mayBeNone = field.default === null && field.kind !== 'text';
    const parse = parserOf(field);
    const isBare = field.kind === 'flag' && !hasTruth;
    return {
      ...{name, flags: `--${name.replaceAll('_', '-')}${isBare ? '' : ` <${valueName(name, field)}>`}`},
      about: `${field.option ?? field.means}${mayBeNone ? ' (or none)' : ''}`,
      choices: field.kind === 'word' ? field.words : undefined,
      parse: isBare ? undefined : mayBeNone ? orNone(parse) : parse,
    };
  });
}

/** The placeholders of forms whose own name says little. */
const VALUES: Partial<Record<keyof OwnValues, string>> = {
  ...{mask: 'spans', new_tokens: 'n', power: 'n', encoder: 'expression', variables: 'json'},
};

function valueName(name: string, field: Field): string {
  if (field.kind === 'number') return /_(s|usd|gb)$/.exec(name)?.[1] ?? 'n';
  if (field.kind === 'own') return VALUES[field.form] ?? field.form;
  return {flag: 'true|false', word: 'kind', text: 'text'}[field.kind];
}

function parserOf(field: Field): (given: string) => unknown {
  if (field.kind === 'number') return numberOf(field);
  if (field.kind === 'own') return OWN[field.form] ?? text;
  return field.kind === 'flag' ? trueOrFalse : text;
}

/** The fields that have a value, also null. */
export function definedFields<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** The fields that have a value. Throws `UsageError` without one. */
export function requireChange<T extends object>(fields: T): Partial<T> {
  const changed = definedFields(fields);
  if (Object.keys(changed).length > 0) return changed;
  const options = Object.keys(fields).map(name => `--${name.replaceAll('_', '-')}`);
  throw new UsageError(
    `There is nothing to change: give ${options.slice(0, -1).join(', ')} or ${options.at(-1)}`,
  );
}
