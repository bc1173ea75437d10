import assert from 'node:assert/strict';
import {Command} from 'commander';
import {commandsOf, type Names, problemsOf, type Row, rowsOf} from '../support/docs/seed-tables.ts';

const program = new Command('gleaner');
const jobs = program.command('jobs');
jobs.command('submit').option('--test <n>');
program.command('exec').option('--shell').option('--timeout <s>');

const names: Names = {
  commands: commandsOf(program),
  scripts: new Set(['start', 'bench:code-loop']),
  variables: new Set(['GLEANER_POLL_S', 'GLEANER_ZONES']),
  files: ['functions/on-job.ts', 'shared/domain/names.ts'],
  folders: new Set(['functions', 'shared']),
  messages: new Map([
    ['submit', new Set(['action', 'job', 'code'])],
    ['retry', new Set(['action', 'job'])],
  ]),
  fields: new Set(['code', 'timeout']),
  keys: new Set(['model', 'record']),
};

const row = (place: string, state = 'here', seed = 3): Row => ({seed, given: '', place, state});

const right: string[] = [
  '`gleaner jobs submit --test 5`, `--test`',
  '`gleaner exec POOL -- ls --all`, with `--shell` and `--timeout=60`',
  '`npm start -- --input FILE`, `npm run bench:code-loop`',
  '`GLEANER_POLL_S`, `GLEANER_*_S`, `GLEANER_ZONES=a,b`',
  '`domain/names.ts`, `functions/`, `functions/on-job.ts`',
  'message `submit` with `job` and `code`; messages `submit` and `retry`',
  '`{"action":"retry","job":"J"}`',
  'fields `code` and `timeout`; field `code timeout`',
  'keys `model` and `record: {"field": "examples"}`',
];

const wrong: [place: string, problem: string][] = [
  ['`gleaner jobs`', 'command gleaner jobs'],
  ['`gleaner jobs revive`', 'command gleaner jobs revive'],
  ['`gleaner follow`', 'command gleaner follow'],
  ['`gleaner jobs submit --priority`', 'flag --priority'],
  ['`gleaner exec all`, `--test N`', 'flag --test'],
  ['none, but `--zone`', 'flag --zone of no command'],
  ['`npm run bench:nothing`', 'script bench:nothing'],
  ['`GLEANER_TIMEOUT_S`', 'GLEANER_TIMEOUT_S'],
  ['`GLEANER_*_USD`', 'GLEANER_*_USD'],
  ['`domain/jobs.ts`', 'domain/jobs.ts'],
  ['message `create`', 'message create'],
  ['messages `submit` and `revive`', 'message revive'],
  ['message `submit` with `worker`', 'key worker of message submit'],
  ['`{"action":"submit","run":"r"}`', 'key run of message submit'],
  ['field `deadline`', 'field deadline'],
  ['key `models`', 'key models'],
];

describe('the check of the seed tables', () => {
  for (const place of right)
    it(`the check of the seed tables accepts ${place}`, () => {
      assert.deepEqual(problemsOf(row(place), names), []);
    });

  for (const [place, problem] of wrong)
    it(`the check of the seed tables refuses ${place}`, () => {
      assert.deepEqual(problemsOf(row(place), names), [problem]);
    });

  it('the check of the seed tables knows two states', () => {
    const problems = (state: string) => problemsOf(row('a place', state), names);
    assert.deepEqual(problems('here'), []);
    assert.deepEqual(problems('declined: the host is shared'), []);
    assert.deepEqual(problems('declined'), ['state "declined"']);
    assert.deepEqual(problems('later'), ['state "later"']);
  });

  it('the check of the seed tables reads the rows of the sections of seeds', () => {
    const text = [
      ...[
        '# Title',
        '| no | row | here |',
        '## Seed 4: scripts',
        '',
        '| in the seeds | in Gleaner | state |',
      ],
      ...['|---|---|---|', '| 4.1 `a \\| b` | `gleaner exec` | here |', '', '## Settled', '| x | y |'],
    ].join('\n');
    const given = '4.1 `a \\| b`';
    assert.deepEqual(rowsOf(text), [{seed: 4, given, place: '`gleaner exec`', state: 'here'}]);
  });
});
