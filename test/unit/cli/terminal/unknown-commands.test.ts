/** The guess after a mistyped command. */
import assert from 'node:assert/strict';
import type {CommanderError} from 'commander';
import {gleanerProgram} from '../../../../cli/program.ts';
import type {GleanerCommand} from '../../../../cli/terminal/command.ts';

const program = gleanerProgram();
const groups = [program, ...program.commands].filter(({commands}) => commands.length > 0) as GleanerCommand[];
for (const group of groups) group.exitOverride().configureOutput({writeErr: () => {}});

function guessOf(group: GleanerCommand, given: string): string[] {
  group.args = [given];
  try {
    return group.unknownCommand();
  } catch (error) {
    const [, guess] = /\(Did you mean (.*)\?\)/.exec((error as CommanderError).message) ?? [];
    return guess?.split(' or ') ?? [];
  }
}

/** The word with one letter left out, doubled or exchanged with the next, and its beginnings. */
function slipsOf(word: string): string[] {
  return [...word].flatMap((letter, at) => {
    const [before, after] = [word.slice(0, at), word.slice(at + 1)];
    const swapped = `${before}${after.slice(0, 1)}${letter}${after.slice(1)}`;
    return [before + after, `${before}${letter}${letter}${after}`, swapped, word.slice(0, at + 2)];
  });
}

describe('The guess after a mistyped command', () => {
  for (const group of groups) {
    const names = group.commands.map(command => command.name());
    const changing = group.commands
      .filter(command => (command as GleanerCommand).mayChange())
      .map(command => command.name());
    it(`the guess in ${group.name()} names no command that changes something for one slip in a command that shows something`, () => {
      for (const name of names.filter(each => !changing.includes(each) && each.length > 2))
        for (const slip of slipsOf(name).filter(each => !names.includes(each))) {
          const guess = guessOf(group, slip);
          assert.deepEqual(
            guess.filter(each => changing.includes(each)),
            [],
            `${slip} for ${name}`,
          );
        }
    });
  }

  const run = groups.find(group => group.name() === 'run') as GleanerCommand;
  for (const [given, guess] of [
    ['stat', ['status']],
    ['st', ['status']],
    ['strat', ['start']],
    ['sto', ['stop']],
    ['show', []],
    ['remove', []],
  ] as const)
    it(`the guess for gleaner run ${given} is ${guess.join(' or ') || 'none'}`, () =>
      assert.deepEqual(guessOf(run, given), guess));
});
