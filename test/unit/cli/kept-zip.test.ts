import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {rmSync} from 'node:fs';
import {keptZip, recordZip} from '../../../cli/build/functions.ts';
import {Folder} from '../../support/machine/folder.ts';

const ZIP = Buffer.from('a zip');
const NAME = `functions-${createHash('sha256').update(ZIP).digest('hex')}.zip`;
const MODULES = ['src/a.ts', 'src/b.ts'];
const SOURCES = [...MODULES, 'absent.json'];
/** Later than the changes of every file. */
const LATER = Number.MAX_SAFE_INTEGER;

describe('The zip of the functions that a build left', () => {
  const folder = new Folder(afterEach);
  const record = (began_ms: number) =>
    recordZip(folder.at('dist'), folder.path, {zip: ZIP, modules: MODULES, sources: SOURCES}, began_ms);
  const kept = () => keptZip(folder.at('dist'), folder.path);
  beforeEach(async () => {
    folder.put('src/a.ts', 'a');
    folder.put('src/b.ts', 'b');
    folder.put(`dist/${NAME}`, ZIP.toString());
    await record(LATER);
  });

  it('the zip of the functions that a build left serves a build of the same sources', () => {
    assert.deepEqual(kept(), ZIP);
    folder.put('src/a.ts', 'a');
    assert.deepEqual(kept(), ZIP, 'the time of a file says nothing');
  });

  const changes: {name: string; change: () => void}[] = [
    {name: 'a changed source', change: () => folder.put('src/b.ts', 'c')},
    {name: 'a source that was absent', change: () => folder.put('absent.json', '{}')},
    {name: 'a source that is gone', change: () => rmSync(folder.at('src/a.ts'))},
    {name: 'a damaged zip', change: () => folder.put(`dist/${NAME}`, 'a zi')},
    {name: 'a zip that is gone', change: () => rmSync(folder.at(`dist/${NAME}`))},
    {name: 'a damaged record', change: () => folder.put('dist/functions.json', '{"zip": "')},
    {name: 'a record of another form', change: () => folder.put('dist/functions.json', '{"zip": 1}')},
    {name: 'no record', change: () => rmSync(folder.at('dist/functions.json'))},
  ];
  for (const {name, change} of changes)
    it(`the zip of the functions that a build left serves no build with ${name}`, () => {
      change();
      assert.equal(kept(), undefined);
    });

  it('the zip of the functions that a build left is not recorded when a module went during the build', async () => {
    rmSync(folder.at('dist/functions.json'));
    rmSync(folder.at('src/b.ts'));
    await record(LATER);
    assert.equal(kept(), undefined);
  });

  it('the zip of the functions that a build left is not recorded when a source changed during the build', async () => {
    rmSync(folder.at('dist/functions.json'));
    await record(0);
    assert.equal(kept(), undefined);
  });
});
