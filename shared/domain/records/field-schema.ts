/** Schemas of declared fields: in documents, in messages, in files that people write, and in the environment of the functions. */
import {z} from 'zod';
import {type Field, type Fields, type Form, mapFields, type OwnValues, type ValueOf} from './field.ts';

export type OwnForms = {[Name in keyof OwnValues]?: z.ZodType<OwnValues[Name]>};
type Schemas<All extends Fields> = {-readonly [Name in keyof All]: z.ZodType<ValueOf<All[Name]>>};
type Known<F extends Field> = F extends {default: unknown} ? ValueOf<F> : ValueOf<F> | undefined;

/** Text without lone surrogates, which JSON allows and documents do not. */
export const wellFormed = (most: number) =>
  z
    .string()
    .min(1)
    .max(most)
    .refine(value => value.isWellFormed(), 'is not valid Unicode');
export const nameText = (most: number) =>
  wellFormed(most).regex(/^\P{Cc}*$/u, 'expected a name without control characters');

function schemaOf(form: Form, number: z.ZodNumber = z.number(), own: OwnForms = {}): z.ZodType {
  if (form.kind === 'flag') return z.boolean();
  if (form.kind === 'word') return z.enum(form.words);
  if (form.kind === 'text') return (form.isName ? nameText : wellFormed)(form.most);
  if (form.kind === 'own') return own[form.form] ?? z.string();
  const kind = form.whole ? number.int() : number;
  return (form.above === undefined ? kind.min(form.least ?? 0) : kind.gt(form.above)).max(form.most);
}

const orNull = (field: Field, schema: z.ZodType) => (field.default === null ? schema.nullable() : schema);

/** Checks the lower bound of the message or the deployment; a later release may have raised the upper one. Words are checked exactly. */
function storedForm(field: Field): z.ZodType {
  if (field.kind === 'text' || field.kind === 'own') return z.string();
  if (field.kind !== 'number') return schemaOf(field);
  const forms = [field, field.deployed ?? field].filter(form => form.kind === 'number');
  const least = Math.min(...forms.map(({least, above = 0}) => least ?? above));
  return (field.whole ? z.number().int() : z.number()).min(least);
}

/** Fields of documents. A document of an earlier release gets the default of a field that it lacks. */
export const storedShape = <All extends Fields>(all: All) =>
  mapFields(all, field => {
    const schema = orNull(field, storedForm(field));
    return (field.default === undefined ? schema : schema.default(field.default)).describe(field.means);
  }) as Schemas<All>;

/** Fields of messages; each may be absent. */
export const messageShape = <All extends Fields>(all: All) =>
  mapFields(all, field => orNull(field, schemaOf(field)).optional()) as {
    -readonly [Name in keyof All]: z.ZodOptional<z.ZodType<ValueOf<All[Name]>>>;
  };

/** Keys of files, with their default as `meta`. */
export const inputShape = <All extends Fields>(all: All, own: OwnForms) =>
  mapFields(all, field => {
    const {means: description, default: given} = field;
    const schema = orNull(field, schemaOf(field, undefined, own));
    return schema.meta({description, ...(given !== undefined && {default: given})});
  }) as Schemas<All>;

/** Variables of the functions: GLEANER_POLL_S for `poll_s`. */
export function environmentShape<All extends Fields>(all: All) {
  const variables = Object.entries(all).map(([name, field]) => {
    const form = field.deployed ?? field;
    const truth = z.enum(['true', 'false']).transform(text => text === 'true');
    const schema = orNull(field, form.kind === 'flag' ? truth : schemaOf(form, z.coerce.number()));
    return [`GLEANER_${name.toUpperCase()}`, schema.default(field.default)];
  });
  return Object.fromEntries(variables) as {
    [Name in keyof All & string as `GLEANER_${Uppercase<Name>}`]: z.ZodType<Known<All[Name]>>;
  };
}
