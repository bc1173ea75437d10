/** Whether a text names commands that exist: `gleaner` with its options, gcloud with the flags of a table, and scripts of npm. */
import type {Command} from 'commander';
import {gleanerProgram, leavesOf} from '../../../cli/program.ts';
import packages from '../../../package.json' with {type: 'json'};
import {wordsOf} from './doc-blocks.ts';
import {GCLOUD} from './gcloud-flags.ts';

/** Why `gleaner ARGS` is no command, or undefined. The command itself does not run. */
async function whyNoCommand(args: string[]): Promise<string | undefined> {
  const program = gleanerProgram();
  let said = '';
  const quiet = (command: Command) => {
    command.exitOverride().configureOutput({writeErr: text => (said += text), writeOut: () => {}});
    command.commands.forEach(quiet);
  };
  quiet(program);
  for (const leaf of leavesOf(program)) leaf.action(() => {});
  try {
    await program.parseAsync(args, {from: 'user'});
    return undefined;
  } catch (error) {
    const code = (error as {code?: string}).code ?? '';
    return /help|version/.test(code) ? undefined : said || String(error);
  }
}

function whyNoGcloud(words: string[]): string | undefined {
  const verb = Object.keys(GCLOUD).find(each => `${words.join(' ')} `.startsWith(`${each} `));
  if (verb === undefined) return `gcloud ${words.join(' ')} is not in test/support/docs/gcloud-flags.ts`;
  const flags = words.filter(word => word.startsWith('--')).map(word => word.split('=')[0] ?? '');
  const unknown = flags.filter(flag => !GCLOUD[verb]?.includes(flag));
  return unknown.length > 0 ? `gcloud ${verb} has no ${unknown.join(', no ')} in the table` : undefined;
}

function whyNoScript(script: string | undefined): string | undefined {
  return script !== undefined && script in packages.scripts ? undefined : `there is no script ${script}`;
}

/** Why a line that a person types cannot work, or undefined. */
export async function whyWrong(command: string): Promise<string | undefined> {
  const [program = '', ...words] = wordsOf(command);
  if (program === 'npx' && words[0] === 'gleaner') return whyNoCommand(words.slice(1));
  if (program === 'gleaner') return whyNoCommand(words);
  if (program === 'gcloud') return whyNoGcloud(words);
  if (program !== 'npm') return undefined;
  if (words[0] === 'start') return whyNoCommand(['demo', ...words.slice(1).filter(word => word !== '--')]);
  return words[0] === 'run' ? whyNoScript(words[1]) : undefined;
}

const program = gleanerProgram();

/**
 * Why a sentence names a command that does not exist, or undefined. A sentence may leave arguments and options out, and may have
 * placeholders such as RUN.
 */
export function whyUnknown(command: string): string | undefined {
  const [name = '', ...words] = wordsOf(command);
  if (name === 'gcloud') return whyNoGcloud(words);
  if (name === 'npm') return words[0] === 'run' ? whyNoScript(words[1]) : undefined;
  let found: Command = program;
  const rest = words.slice(name === 'npx' ? 1 : 0);
  while (found.commands.length > 0 && rest[0] !== undefined && !rest[0].startsWith('-')) {
    const next = found.commands.find(each => each.name() === rest[0]);
    // `gleaner jobs …` stands for every command of the group.
    if (/^[…X]$/.test(rest[0])) return undefined;
    if (!next) return `gleaner ${found.name()} has no command ${rest[0]}`;
    found = next;
    rest.shift();
  }
  const known = [...found.options.map(({long}) => long ?? ''), '--help', '--version', '--'];
  const own = rest.includes('--') ? rest.slice(0, rest.indexOf('--')) : rest;
  const unknown = own
    .map(word => word.split('=')[0] ?? '')
    .filter(word => word.startsWith('--') && !known.includes(word));
  return unknown.length > 0 ? `gleaner ${found.name()} has no option ${unknown.join(', ')}` : undefined;
}

/** Commands in the backticks of a sentence, also in those of a template literal. */
export function namedCommands(text: string): string[] {
  const quotes = text.matchAll(/\\?`((?:npx gleaner|gleaner|gcloud|npm run) [^`\\\n]+)\\?`/g);
  return [...quotes].map(([, command = '']) => command.replaceAll(/ ?\$\{[^}]*\}/g, ' X'));
}
