/** The help of every command. */
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import type {Command} from 'commander';
import {gleanerProgram, leavesOf} from '../../../cli/program.ts';
import {ROOT} from '../../support/machine/process.ts';

const HOOK = `${ROOT}test/support/loaded-modules.mjs`;

function nameOf(command: Command): string {
  return command.parent ? `${nameOf(command.parent)} ${command.name()}` : command.name();
}

function helpOf(command: Command): string {
  let text = '';
  command.configureOutput({writeOut: part => (text += part)}).outputHelp();
  return text;
}

describe('The help', () => {
  it('the help loads commander and no other package', () => {
    const {stderr, status} = spawnSync(process.execPath, ['--import', HOOK, 'cli/main.ts', '--help'], {
      cwd: ROOT,
      encoding: 'utf8',
    });
    assert.equal(status, 0);
    const packages = [...stderr.matchAll(/^loads .*\/node_modules\/((?:@[^/]+\/)?[^/]+)/gm)].map(
      ([, name]) => name,
    );
    assert.deepEqual([...new Set(packages)], ['commander']);
  });

  const leaves = leavesOf(gleanerProgram()).filter(command => command.name() !== 'complete');
  for (const command of leaves)
    it(`the help of ${nameOf(command)} describes the command, its options and arguments, and has an example of it`, () => {
      const help = helpOf(command);
      const examples = help.split('\nExamples:\n')[1] ?? '';
      assert.ok(examples.includes(nameOf(command)), help);
      assert.notEqual(command.description(), '');
      for (const {long, description} of command.options) assert.notEqual(description, '', long);
      for (const argument of command.registeredArguments)
        assert.notEqual(argument.description, '', argument.name());
    });
});
