/** docs/firestore.md: every field of every stored document. */
import {STORED_SCHEMAS} from './stored-schemas.ts';
import {row, schemaOf, typeOf} from './types.ts';

/** The page: each section of the template begins with its documents, and gets a table of their fields. */
export function firestorePage(template: string): string {
  const sections = template.split(/^(?=## )/m);
  return sections.map(section => withFields(section, section.slice(3, section.indexOf('\n')))).join('');
}

function withFields(section: string, title: string): string {
  const schema = STORED_SCHEMAS[title];
  if (!schema) return section;
  const fields = Object.entries(schemaOf(schema).properties ?? {}).map(([field, property]) => {
    if (!property.description) throw new Error(`Failed to describe ${title}: ${field} has no description`);
    return row(`\`${field}\``, typeOf(property), property.description);
  });
  const table = ['| field | type | meaning |', '|---|---|---|', ...fields];
  return section.replace('{{fields}}', () => table.join('\n'));
}
