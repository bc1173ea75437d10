/** The generated pages and schemas. */
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {z} from 'zod';
import {answers, failure} from '../../../client/json/index.ts';
import {STORED_SCHEMAS} from '../../../client/json/stored-schemas.ts';
import {row, schemaOf, typeOf} from '../../../client/json/types.ts';
import {timings} from '../../../shared/contracts/settings/environment.ts';
import {FORMS} from '../../../shared/contracts/spec/selections.ts';
import {type Fields, mapFields} from '../../../shared/domain/records/field.ts';
import {entryKeys, recordKeys, runSettings, specKeys} from '../../../shared/domain/records/spec-keys.ts';
import {controlPage} from './control-messages.ts';
import {controlJsonSchema, runSpecJsonSchema} from './json-schemas.ts';
import {notebook} from './notebook.ts';
import {runSpecPage, withTable} from './run-spec.ts';

const FIELDS = '| field | type | meaning |';
const DOCS = fileURLToPath(new URL('../../../docs/', import.meta.url));

export function outputJsonSchema(): object {
  const schemas = Object.entries({...answers, failure}).map(([name, schema]) => {
    const {$schema: _, ...own} = z.toJSONSchema(schema, {unrepresentable: 'any'});
    return [name, own] as const;
  });
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Answers of gleaner --json, by command',
    $defs: Object.fromEntries(schemas),
  };
}

/** The files of docs/, by path. Pages keep their text, and get their tables. */
export function generated(): Map<string, string> {
  const json = (schema: object) => `${JSON.stringify(schema, null, 2)}\n`;
  const page = (name: string) => readFileSync(DOCS + name, 'utf8');
  return new Map([
    [`${DOCS}run-spec.md`, runSpecPage(page('run-spec.md'))],
    [`${DOCS}inside/firestore.md`, firestorePage(page('inside/firestore.md'))],
    [`${DOCS}control-messages.md`, controlPage(page('control-messages.md'))],
    [`${DOCS}tutorial.ipynb`, notebook(page('tutorial.md'))],
    [`${DOCS}run.schema.json`, json(runSpecJsonSchema())],
    [`${DOCS}control.schema.json`, json(controlJsonSchema())],
    [`${DOCS}../terraform/timings.json`, json(timingLimits())],
    [`${DOCS}../worker-startup/gleaner_worker/spec/spec-keys.json`, json(workerKeys())],
  ]);
}

/** spec-keys.json of the worker: the form and the default of each key that it reads, and the keys of the control plane alone. */
function workerKeys(): object {
  const all: Record<string, Fields> = {spec: specKeys, record: recordKeys, ...entryKeys};
  const forms = Object.entries(all).map(([name, keys]) => [
    ...[name, mapFields<Fields, object>(keys, ({means: _, option: _option, ...form}) => form)],
  ]);
  return {...Object.fromEntries(forms), run: Object.keys(runSettings), forms: FORMS};
}

/** terraform/timings.json: the limits of each timing, by its name in `timings` of Terraform. */
function timingLimits(): object {
  const limits = timings.map(([name, schema]) => {
    const {exclusiveMinimum: above, minimum: least, maximum: most} = z.toJSONSchema(schema);
    return [name.slice('GLEANER_'.length).toLowerCase(), {above, least, most}];
  });
  return Object.fromEntries(limits);
}

/** docs/inside/firestore.md: each section has a table of the fields of its documents. */
function firestorePage(page: string): string {
  const sections = page.split(/^(?=## )/m);
  const titleOf = (section: string) => section.slice(3, section.indexOf('\n'));
  const missing = Object.keys(STORED_SCHEMAS).filter(name => !sections.map(titleOf).includes(name));
  if (missing.length > 0)
    throw new Error(`Failed to find ${missing.join(', ')} in firestore.md: write a section`);
  return sections.map(section => withFields(section, titleOf(section))).join('');
}

function withFields(section: string, title: string): string {
  const schema = STORED_SCHEMAS[title];
  if (!schema) {
    if (section.includes(FIELDS)) throw new Error(`Failed to fill the table of ${title}: it has no schema`);
    return section;
  }
  const fields = Object.entries(schemaOf(schema).properties ?? {}).map(([field, property]) => {
    if (!property.description) throw new Error(`Failed to describe ${title}: ${field} has no description`);
    return row(`\`${field}\``, typeOf(property), property.description);
  });
  return withTable(section, [FIELDS, '|---|---|---|', ...fields]);
}
