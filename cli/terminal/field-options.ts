/** Options of declared fields, as plain data: `GleanerCommand.fields` adds them. */
import type {Field, Fields} from '../../shared/domain/records/field.ts';
import {numberOf, orNone, text, trueOrFalse} from './arguments.ts';

export type FieldOption = {
  name: string;
  flags: string;
  about: string;
  choices?: readonly string[];
  parse?: (given: string) => unknown;
};

/** `--job-wait-s <s>` for `job_wait_s`. A flag of `hasTruth` says true or false. */
export function optionsOf(all: Fields, hasTruth: boolean): FieldOption[] {
  return Object.entries(all).map(([name, field]) => {
    const long = `--${name.replaceAll('_', '-')}`;
    const about = `${field.option}${field.default === null && field.kind === 'number' ? ', or none' : ''}`;
    if (field.kind === 'flag' && !hasTruth) return {name, flags: long, about};
    const flags = `${long} <${valueName(name, field)}>`;
    if (field.kind === 'word') return {name, flags, about, choices: field.words};
    const parse = parserOf(field);
    return {name, flags, about, parse: field.default === null ? orNone(parse) : parse};
  });
}

function valueName(name: string, field: Field): string {
  if (field.kind === 'number') return /_(s|usd|gb)$/.exec(name)?.[1] ?? 'n';
  return field.kind === 'flag' ? 'true|false' : field.kind;
}

function parserOf(field: Field): (given: string) => unknown {
  if (field.kind === 'number') return numberOf(field);
  return field.kind === 'flag' ? trueOrFalse : text;
}
