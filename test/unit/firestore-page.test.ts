/** docs/firestore.md has each field of each stored document, with its type and its meaning. */
import assert from 'node:assert/strict';
import {schemaOf, typeOf} from '../../cli/build/reference/types.ts';
import {readPage} from '../support/doc-blocks.ts';
import {STORED_SCHEMAS} from '../support/stored-schemas.ts';

/** A field that no schema checks: only people and commands read it. */
const UNCHECKED = 'further field';

describe('docs/firestore.md', () => {
  const sections = readPage('docs/firestore.md').split(/^## /m);

  for (const [title, schema] of Object.entries(STORED_SCHEMAS))
    it(`has each field of ${title} with its type and a meaning`, () => {
      const section = sections.find(text => text.startsWith(`${title}\n`)) ?? assert.fail(`no ## ${title}`);
      const rows = [...section.matchAll(/^\| `(\w+)` \| (.+?) \| (.+) \|$/gm)];
      const found = new Map(rows.map(([, field, type]) => [field, type]));
      const {properties = {}} = schemaOf(schema);
      for (const [field, property] of Object.entries(properties))
        assert.equal(found.get(field), typeOf(property), `the type of ${field}`);
      for (const [, field = '', type, meaning = ''] of rows) {
        assert.ok(field in properties || type === UNCHECKED, `${field} is no field`);
        assert.match(meaning, /[.]$/);
      }
    });
});
