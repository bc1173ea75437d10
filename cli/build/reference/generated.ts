/** The generated pages and schemas. */
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {z} from 'zod';
import {answers, failure} from '../../json/index.ts';
import {firestorePage} from './firestore.ts';
import {controlJsonSchema, runSpecJsonSchema} from './json-schemas.ts';
import {runSpecPage} from './run-spec.ts';

const DOCS = fileURLToPath(new URL('../../../docs/', import.meta.url));

/** JSON Schema of the answers of `--json`, by command. */
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

/** The files of docs/, by path. */
export function generated(): Map<string, string> {
  const json = (schema: object) => `${JSON.stringify(schema, null, 2)}\n`;
  const page = (name: string) => readFileSync(new URL(`pages/${name}`, import.meta.url), 'utf8');
  return new Map([
    [`${DOCS}run-spec.md`, runSpecPage(page('run-spec.md'))],
    [`${DOCS}firestore.md`, firestorePage(page('firestore.md'))],
    [`${DOCS}run.schema.json`, json(runSpecJsonSchema())],
    [`${DOCS}control.schema.json`, json(controlJsonSchema())],
  ]);
}
