/**
 * A field that people set, declared once as plain data. Schemas (`field-schema.ts`), options (`cli/terminal/field-options.ts`), variables,
 * pages, Terraform's limits and the worker's checks follow from it. It has no imports, so that the help of a command loads no schema.
 */

/** A number from `least`, or above `above`, to `most`. */
export type NumberForm = {kind: 'number'; whole?: true; least?: number; above?: number; most: number};
type FlagForm = {kind: 'flag'};
type WordForm = {kind: 'word'; words: readonly string[]};
/** `isName`: without control characters, because terminals show names. */
type TextForm = {kind: 'text'; most: number; isName?: true};
/** A form that code checks: `OWN` of `contracts/spec/spec-forms.ts`, and `_OWN` of `spec.py`. */
type OwnForm = {kind: 'own'; form: keyof OwnValues};
export type Form = NumberForm | FlagForm | WordForm | TextForm | OwnForm;

export type OwnValues = Record<'mask' | 'encoder' | 'pool' | 'output' | 'path' | 'site', string> & {
  layers: string | number[];
  sites: string[];
  tokens: string | number[];
  new_tokens: {max_new_tokens: number; temperature: 0};
  size: number;
  when: 'auto' | boolean;
  power: number;
  names: string[];
  variables: Record<string, unknown>;
  features: Reduction<{site: string | null; k: number | null}>[];
  project: Reduction<{site: string; dtype: 'bf16' | 'fp32'}>[];
  moments: Given<{sites: string[] | null; layers: string | number[] | null}>;
};
type Given<T> = {[Key in keyof T]?: T[Key] | undefined};
type OfEach = {revision: string | null; path: string; layers: string | number[] | null};
type Reduction<Own> = {name: string; weights: string} & Given<OfEach & Own>;

/**
 * `default`: null where the value may be null; absent if a missing value follows from other fields. `means`: a sentence for pages. `option`:
 * a phrase for the help. `deployed`: the form of the variable GLEANER_NAME, if it differs.
 */
type Declared = {default?: unknown; means: string; option?: string; deployed?: Form};
export type Field = Form & Declared;
export type Fields = Readonly<Record<string, Field>>;

type FormValue<F extends Form> = F extends NumberForm
  ? number
  : F extends FlagForm
    ? boolean
    : F extends WordForm
      ? F['words'][number]
      : F extends OwnForm
        ? OwnValues[F['form']]
        : string;
export type ValueOf<F extends Field> = FormValue<F> | (F extends {default: null} ? null : never);
export type ValuesOf<All extends Fields> = {-readonly [Name in keyof All]: ValueOf<All[Name]>};

export const whole = (least: number, most: number) => ({kind: 'number', whole: true, least, most}) as const;
export const flag = {kind: 'flag'} as const;
export const text = (most: number) => ({kind: 'text', most}) as const;
export const name = (most: number) => ({kind: 'text', most, isName: true}) as const;
export const own = <const Name extends keyof OwnValues>(form: Name) => ({kind: 'own', form}) as const;
export const word = <const Words extends readonly string[]>(...words: Words) =>
  ({kind: 'word', words}) as const;

export function mapFields<All extends Fields, T>(
  all: All,
  of: (field: Field, name: keyof All & string) => T,
): {-readonly [Name in keyof All]: T} {
  const entries = Object.entries(all).map(([name, field]) => [name, of(field, name)]);
  return Object.fromEntries(entries) as {-readonly [Name in keyof All]: T};
}

export const defaultsOf = <All extends Fields>(all: All) =>
  mapFields(all, field => field.default) as ValuesOf<All>;

/** The values of those fields that `values` has. */
export const pick = <All extends Fields, T extends object>(all: All, values: T) =>
  Object.fromEntries(
    Object.entries(values).filter(([name, value]) => name in all && value !== undefined),
  ) as Pick<T, keyof T & keyof All>;
