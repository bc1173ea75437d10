/** Commands that a text names, between backticks or as the rest of a line, as this person has to type them: with `npx`, and for the same cloud. */
import type {Command} from 'commander';

type Typed = {
  /** The words that start the command: `gleaner`, or `npx gleaner` where npm has started this one. */
  start: string;
  /** Options of the local cloud that this command was given. */
  cloud: {cloud?: string; port?: number; dir?: string};
  program: Command | undefined;
};

let typed: Typed = {start: 'gleaner', cloud: {}, program: undefined};

export function setTyped(given: Typed): void {
  typed = given;
}

/** The options that name the cloud that this command has started itself; none where commands of this folder find it. */
export function setTypedCloud(cloud: Typed['cloud']): void {
  typed = {...typed, cloud};
}

/** Events of npm that start this command: `npx gleaner`, `npm start` and `npm run gleaner`. */
const NPM_EVENTS = ['npx', 'start', 'gleaner'];

/** npm puts `gleaner` on the path of what it starts, and only there. */
export function startOf({npm_lifecycle_event: event = ''}: NodeJS.ProcessEnv): string {
  return NPM_EVENTS.includes(event) ? 'npx gleaner' : 'gleaner';
}

export function withHints(line: string): string {
  return line
    .replaceAll(/`(?:npx )?gleaner ([^`]+)`/g, (_, rest: string) => `\`${hint(rest)}\``)
    .replace(
      /(^ *|: | {2})(?:npx )?gleaner ([a-z][^`]*)$/,
      (_, before: string, rest: string) => before + hint(rest),
    );
}

function hint(rest: string): string {
  const {start, cloud, program} = typed;
  const options =
    program && !/--(cloud|port|dir)\b/.test(rest) ? cloudOptions(optionsOf(program, rest), cloud) : '';
  const [own = '', ...others] = rest.split(/(?= -- )/);
  return `${start} ${own}${options}${others.join('')}`;
}

function cloudOptions(known: ReadonlySet<string>, {cloud, port, dir}: Typed['cloud']): string {
  if (cloud !== undefined && known.has('--cloud'))
    return /^[\w./:-]+$/.test(cloud) ? ` --cloud ${cloud}` : '';
  if (port !== undefined && known.has('--port')) return ` --port ${port}`;
  return dir !== undefined && known.has('--dir') && /^[\w./-]+$/.test(dir) ? ` --dir ${dir}` : '';
}

function optionsOf(program: Command, rest: string): Set<string> {
  let command = program;
  for (const word of rest.split(' ')) {
    const next = command.commands.find(each => each.name() === word);
    if (!next) break;
    command = next;
  }
  return new Set(command.options.map(({long}) => long ?? ''));
}
