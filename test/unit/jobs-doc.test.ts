/** The tables of docs/jobs.md name each field, cause and limit of a job. */
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {jobFields} from '../../shared/contracts/messages/job-schemas.ts';

import {CAUSES} from '../../shared/domain/records/causes.ts';
import {ROOT} from '../support/machine/process.ts';

const text = readFileSync(`${ROOT}docs/jobs.md`, 'utf8');

/** Texts in backticks in the first cells of the table after a sentence. */
function firstCells(after: string): string[] {
  const [, rest = ''] = text.split(after);
  const table = /(?:^\|.*\n)+/m.exec(rest)?.[0] ?? '';
  const cells = table.split('\n').slice(2);
  return cells.flatMap(line =>
    [...(line.split(' | ')[0] ?? '').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name),
  );
}

describe('docs/jobs.md', () => {
  const written = firstCells('People write these');

  it('has a row for each field that people write', () => {
    assert.deepEqual(written.toSorted(), Object.keys(jobFields).sort());
  });

  it('says what each cause does to the job', () => {
    // No agent of this release reports too much output: the rest of the output is left out.
    const causes = CAUSES.filter(cause => cause !== 'output');
    assert.deepEqual(firstCells('Its `cause` decides').toSorted(), causes.toSorted());
  });

  it('names the defaults of the schema', () => {
    for (const [field, schema] of Object.entries(jobFields)) {
      const given = schema.safeParse(undefined).data ?? undefined;
      const row = new RegExp(`^\\| \`${field}\` \\| (.*?) ?\\|`, 'm').exec(text)?.[1] ?? '';
      if (given !== undefined) assert.equal(row.replaceAll('`', ''), JSON.stringify(given), field);
    }
  });
});
