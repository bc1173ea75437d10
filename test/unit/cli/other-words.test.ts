import assert from 'node:assert/strict';
import {gleanerProgram} from '../../../cli/program.ts';
import {meantBy} from '../../../cli/terminal/other-words.ts';
import {gleaner} from '../../support/command.ts';

const MEANT: [typed: string, meant: string | undefined][] = [
  ['run delete', 'gleaner run stop'],
  ['run list', 'gleaner run status'],
  ['jobs kill', 'gleaner jobs cancel'],
  ['jobs status', 'gleaner jobs show'],
  ['pool stop', 'gleaner pool pause'],
  ['pool resize', 'gleaner scale POOL'],
  ['streams list', 'gleaner status RUN'],
  ['tpus rm', 'gleaner tpus delete'],
  ['runs', 'gleaner run'],
  ['submit', 'gleaner jobs submit'],
  ['workers', 'gleaner tpus'],
  ['sing', undefined],
  ['run sing', undefined],
];

describe('A word that is no command', () => {
  const program = gleanerProgram();
  const groupOf = (words: string[]) => program.commands.find(each => each.name() === words[0]) ?? program;

  for (const [typed, meant] of MEANT)
    it(`is named as ${meant ?? 'no other'}: ${typed}`, () => {
      const words = typed.split(' ');
      const [first] = meantBy(words.at(-1) ?? '', words.length > 1 ? groupOf(words) : program);
      assert.equal(first, meant);
      if (meant === undefined) return;
      const [, name, sub] = meant.split(' ');
      const found = program.commands.find(each => each.name() === name);
      const isArgument = sub === undefined || /^[A-Z]/.test(sub);
      assert.ok(found && (isArgument || found.commands.some(each => each.name() === sub)), 'it exists');
    });

  it('ends the command with the other one', async () => {
    const {code, stderr} = await gleaner(['run', 'delete', 'my-run']);
    assert.equal(code, 2);
    assert.match(stderr, /^error: unknown command 'delete'\n\(Did you mean gleaner run stop\?\)\n/);
  });

  it('run cancel without a stream names the stop of the run', async () => {
    const {code, stderr} = await gleaner(['run', 'cancel', 'my-run']);
    assert.equal(code, 2);
    assert.match(stderr, /gleaner run stop my-run/);
  });
});
