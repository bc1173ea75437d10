import assert from 'node:assert/strict';
import type {Command} from 'commander';
import {gleanerProgram, leavesOf} from '../../../cli/program.ts';
import {answers} from '../../../client/json/index.ts';

/** `run start`: the words of a command without the name of the program. */
function pathOf(command: Command): string {
  const parent = command.parent?.parent ? `${pathOf(command.parent)} ` : '';
  return `${parent}${command.name()}`;
}

describe('The schemas of answers', () => {
  const commands = leavesOf(gleanerProgram());
  const withJson = commands.filter(({options}) => options.some(({long}) => long === '--json')).map(pathOf);

  it('the schemas of answers exist for each command with --json', () => {
    const known = new Set(Object.keys(answers));
    assert.deepEqual(
      withJson.filter(path => !known.has(path)),
      [],
    );
  });

  it('the schemas of answers belong to a command with --json', () =>
    assert.deepEqual(
      Object.keys(answers).filter(path => !withJson.includes(path)),
      [],
    ));
});
