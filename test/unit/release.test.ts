import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {VERSION} from '../../cli/terminal/version.ts';

describe('The version of a release', () => {
  const places: {file: string; line: RegExp}[] = [
    {file: 'package.json', line: /^ {2}"version": "(.+)"/m},
    {file: 'worker-startup/gleaner_reader/__init__.py', line: /^__version__ = "(.+)"/m},
    {file: 'CITATION.cff', line: /^version: (.+)$/m},
    {file: 'CHANGELOG.md', line: /^## (.+)$/m},
  ];
  for (const {file, line} of places)
    it(`the version of a release is the same in ${file}`, () =>
      assert.equal(line.exec(readFileSync(file, 'utf8'))?.[1], VERSION));
});
