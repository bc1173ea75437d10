/** Files of a data set with damage: rows, or one sentence. The honest files are in test/fixtures/corpus. */
import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import fc from 'fast-check';
import {openSources} from '../../../../cli/streams/sources/resolve.ts';
import {cellsOf, type Watch} from '../../../../cli/streams/sources/row.ts';
import {CliError} from '../../../../client/text/errors.ts';
import {printable} from '../../../../shared/contracts/printable.ts';
import {Folder} from '../../../support/machine/folder.ts';
import {damaged} from '../../../support/machine/mutations.ts';

const CORPUS = fileURLToPath(new URL('../../../fixtures/corpus/', import.meta.url));
const watch: Watch = {stop: new AbortController().signal, moved: () => {}};

describe('a damaged source', () => {
  const folder = new Folder(afterEach);

  const check = async (name: string, numRuns: number) => {
    const honest = readFileSync(`${CORPUS}${name}`);
    let read = 0;
    const rowsOf = async (bytes: Buffer) => {
      folder.put(name, bytes);
      for (const source of await openSources([folder.at(name)], {max_row_mib: 1}, () => {}))
        for await (const rows of source.rows(watch, undefined))
          for (const row of rows) {
            cellsOf(source, row);
            read++;
          }
    };
    await rowsOf(honest);
    assert.ok(read > 0);
    await fc.assert(
      fc.asyncProperty(damaged(honest), async bytes => {
        try {
          await rowsOf(bytes);
        } catch (error) {
          assert.ok(error instanceof CliError, (error as Error).stack);
          assert.ok(error.message.includes(name), error.message);
          assert.ok(printable(error.message).length < 5000, error.message);
        }
      }),
      {numRuns},
    );
  };

  for (const name of readdirSync(CORPUS)) {
    it(`a damaged source gives rows or an error that names it: ${name}`, () => check(name, 40));
    // What a page of Parquet claims is not checked, so damage may take time.
    if (!name.endsWith('.parquet'))
      it(`a damaged source gives rows or an error that names it, in many cases: ${name} @long`, () =>
        check(name, 20_000));
  }
});
