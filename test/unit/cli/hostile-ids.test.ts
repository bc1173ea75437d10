/** Ids that no document can have, as arguments and options of every command that reads a cloud. */
import assert from 'node:assert/strict';
import type {Command} from 'commander';
import {gleanerProgram, leavesOf} from '../../../cli/program.ts';
import {Scratch} from '../../support/machine/a-cloud.ts';
import {gleaner} from '../../support/machine/command.ts';

const IDS = ['__proto__', 'a/b'];
const ARGUMENT = /^(run|name|names|id|pool|target|a|b)$/;
const OPTION = /[<[](run|pool|tpu|job|worker|stream|zone|target|exec)s?[>\]]/;

/** Words of a command, without `gleaner`. */
const wordsOf = (command: Command): string[] =>
  command.parent ? [...wordsOf(command.parent), command.name()] : [];

/** Command lines of a command: with the id in place of each argument, and in place of each option of an id. */
function linesOf(leaf: Command, id: string): string[][] {
  const {registeredArguments: names, options} = leaf;
  const given = names.map(argument => (ARGUMENT.test(argument.name()) ? id : '.'));
  const others = names.map(argument => (ARGUMENT.test(argument.name()) ? 'my-run' : '.'));
  const dry = options.some(({long}) => long === '--dry-run') ? ['--dry-run'] : [];
  const withOption = options.flatMap(({flags, long}) =>
    OPTION.test(flags) && long ? [[...others, long, id]] : [],
  );
  const lines = given.includes(id) ? [given, ...withOption] : withOption;
  return lines.map(line => [...wordsOf(leaf), ...line, ...dry]);
}

describe('A command with an id that no document can have @full', () => {
  const scratch = new Scratch(after);

  it('a command with an id that no document can have says so in a sentence, without a stack', async () => {
    const cloud = await scratch.cloud();
    const leaves = leavesOf(gleanerProgram()).filter(({options}) =>
      options.some(({long}) => long === '--port'),
    );
    const lines = leaves.flatMap(leaf => IDS.flatMap(id => linesOf(leaf, id)));
    assert.ok(lines.length > 60, `${lines.length} command lines`);
    for (const line of lines) {
      const {code, stderr} = await gleaner([...line, '--port', new URL(cloud.url).port]);
      assert.ok([0, 1, 2].includes(code), line.join(' '));
      assert.doesNotMatch(stderr, /^ {4}at |InvalidDocument/m, line.join(' '));
    }
  });
});
