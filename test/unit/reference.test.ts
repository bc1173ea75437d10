/** The generated files fit the schemas and the declared fields. */
import assert from 'node:assert/strict';
import {existsSync, readFileSync} from 'node:fs';
import {basename} from 'node:path';
import {generated} from '../../cli/build/reference/generated.ts';

const normal = (path: string, text: string) => (path.endsWith('.json') ? JSON.parse(text) : text);

describe('generated pages', () => {
  for (const [path, text] of generated())
    it(`${basename(path)} is up to date`, () => {
      assert.ok(existsSync(path), `${path} is missing: run npm run docs`);
      assert.deepEqual(normal(path, readFileSync(path, 'utf8')), normal(path, text), 'run npm run docs');
    });
});
