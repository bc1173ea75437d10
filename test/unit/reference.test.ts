/** The generated pages of docs/ fit the schemas. */
import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {basename} from 'node:path';
import {FIELDS, WORDS} from '../../cli/build/reference/control-messages.ts';
import {generated} from '../../cli/build/reference/generated.ts';
import {schemaOf} from '../../cli/build/reference/types.ts';
import {jobFields} from '../../shared/contracts/job-schemas.ts';
import {controlMessage} from '../../shared/control-plane/events/commands/table.ts';

const normal = (path: string, text: string) => (path.endsWith('.json') ? JSON.parse(text) : text);

describe('generated pages', () => {
  for (const [path, text] of generated())
    it(`docs/${basename(path)} is up to date`, () => {
      assert.ok(existsSync(path), `${path} is missing: run npm run docs`);
      assert.deepEqual(normal(path, readFileSync(path, 'utf8')), normal(path, text), 'run npm run docs');
    });

  for (const [action, {example}] of Object.entries(WORDS))
    it(`the example of the message "${action}" is valid`, () => {
      const parsed = controlMessage.safeParse({action, ...example});
      assert.ok(parsed.success, JSON.stringify(parsed.error?.issues));
    });

  it('every field of a control message has a meaning', () => {
    const messages = schemaOf(controlMessage, 'input').oneOf ?? [];
    const names = new Set(messages.flatMap(({properties = {}}) => Object.keys(properties)));
    const own = [...names].filter(name => name !== 'action' && !(name in jobFields));
    assert.deepEqual(
      own.filter(name => !(name in FIELDS)),
      [],
    );
  });
});
