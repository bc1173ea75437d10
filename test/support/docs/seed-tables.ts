/** Checks the tables of docs/inside/from-the-seeds.md against the product: each name in a row exists. */
import type {Command} from 'commander';
import {isIn, isPath} from './document-paths.ts';

/** A row: words of a seed, their place in Gleaner, and the state. */
export type Row = {seed: number; given: string; place: string; state: string};

/** Names of the product that a row can mention. */
export type Names = {
  /** Options of each command, by its words: `jobs submit`. A command with commands below has the option `<command>`. */
  commands: ReadonlyMap<string, ReadonlySet<string>>;
  /** Scripts of package.json. */
  scripts: ReadonlySet<string>;
  /** Variables of the functions, of startup.sh and of the agent. */
  variables: ReadonlySet<string>;
  files: readonly string[];
  folders: ReadonlySet<string>;
  /** Keys of each control message, by its action. */
  messages: ReadonlyMap<string, ReadonlySet<string>>;
  /** Fields of the document of a job. */
  fields: ReadonlySet<string>;
  /** Keys of run.json. */
  keys: ReadonlySet<string>;
};

/** Option of a command that needs one of the commands below it. */
const NEEDS_COMMAND = '<command>';

export function rowsOf(text: string): Row[] {
  const sections = text.split(/^## /m).slice(1);
  return sections.flatMap(section => {
    const seed = /^Seed (\d)/.exec(section)?.[1];
    if (seed === undefined) return [];
    const lines = section.split('\n').filter(line => line.startsWith('| '));
    return lines.slice(1).map(line => {
      const [given = '', place = '', state = ''] = line.slice(2, -2).split(' | ');
      return {seed: Number(seed), given, place, state};
    });
  });
}

/** Commands and options of a commander program. */
export function commandsOf(program: Command, words = ''): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const command of program.commands) {
    const name = `${words} ${command.name()}`.trim();
    const options = command.options.map(({long, short}) => long ?? short ?? '');
    found.set(name, new Set(command.commands.length > 0 ? [...options, NEEDS_COMMAND] : options));
    for (const [inner, theirs] of commandsOf(command, name)) found.set(inner, theirs);
  }
  return found;
}

/** Names in a row that do not exist, and a wrong state. */
export function problemsOf({seed, place, state}: Row, names: Names): string[] {
  if (state !== 'here' && !/^declined: \S/.test(state)) return [`state "${state}"`];
  const spans = [...place.matchAll(/`([^`]+)`/g)].map(([, span = '']) => span.replaceAll('\\|', '|'));
  return [
    ...wrongCommands(spans, names),
    ...spans.flatMap(span => wrongScript(span, names)),
    ...wrongVariables(place, names),
    ...spans.filter(span => isPath(span, names.folders) && !isIn(names.files, span)),
    ...wrongMessages(place, names),
    ...listed('fields?', place)
      .flatMap(span => span.split(' '))
      .filter(field => seed >= 3 && !names.fields.has(field))
      .map(field => `field ${field}`),
    ...listed('keys?', place)
      .map(span => span.replace(/[:\s].*$/, ''))
      .filter(key => !names.keys.has(key))
      .map(key => `key ${key}`),
  ];
}

/** A flag belongs to the command before it in its cell. */
function wrongCommands(spans: string[], {commands}: Names): string[] {
  let options: ReadonlySet<string> | undefined;
  return spans.flatMap(span => {
    const words = span.split(/\s+/);
    const problems: string[] = [];
    if (words[0] === 'gleaner') {
      const name = nameOf(words.slice(1), commands);
      options = commands.get(name);
      if (!options || options.has(NEEDS_COMMAND)) problems.push(`command ${span}`);
    } else if (!span.startsWith('--')) return [];
    if (!options && problems.length === 0) return [`flag ${span} of no command`];
    const flags = words.slice(0, endOf(words)).filter(word => /^\[?--\w/.test(word));
    const unknown = flags
      .map(flag => flag.replace(/^\[|[=\]].*$/g, ''))
      .filter(flag => options && !options.has(flag));
    return [...problems, ...unknown.map(flag => `flag ${flag}`)];
  });
}

/** Words after a bare `--` are another program's. */
function endOf(words: string[]): number {
  const end = words.indexOf('--');
  return end < 0 ? words.length : end;
}

/** The longest start of these words that names a command. */
function nameOf(words: string[], commands: Names['commands']): string {
  const two = words.slice(0, 2).join(' ');
  return commands.has(two) ? two : (words[0] ?? '');
}

function wrongScript(span: string, {scripts}: Names): string[] {
  const [, script] = /^npm (?:run )?([\w:-]+)/.exec(span) ?? [];
  return script === undefined || script === 'ci' || scripts.has(script) ? [] : [`script ${script}`];
}

/** `GLEANER_*_S` is a pattern. */
function wrongVariables(place: string, {variables}: Names): string[] {
  const given = [...place.matchAll(/\bGLEANER_[A-Z_*]+/g)].map(([name]) => name);
  const isKnown = (name: string) => {
    const pattern = new RegExp(`^${name.replaceAll('*', '\\w+')}$`);
    return [...variables].some(variable => pattern.test(variable));
  };
  return given.filter(name => !isKnown(name));
}

/** Messages as JSON, or by name: message `scale` with `zones`. */
function wrongMessages(place: string, {messages}: Names): string[] {
  const inJson = [...place.matchAll(/`\{"action": ?"([\w-]+)"([^`]*)`/g)].map(
    ([, action = '', rest = '']) => ({
      action,
      keys: [...rest.matchAll(/"(\w+)":/g)].map(([, key = '']) => key),
    }),
  );
  const named = [...place.matchAll(new RegExp(`messages? (${LIST})(?: with (${LIST}))?`, 'g'))].flatMap(
    ([, actions = '', keys = '']) =>
      spansIn(actions)
        .filter(action => /^[\w-]+$/.test(action))
        .map(action => ({action, keys: spansIn(keys)})),
  );
  return [...inJson, ...named].flatMap(({action, keys}) => {
    const known = messages.get(action);
    if (!known) return [`message ${action}`];
    return keys.filter(key => !known.has(key)).map(key => `key ${key} of message ${action}`);
  });
}

/** Texts in backticks with commas or `and` between them. */
const LIST = '`[^`]+`(?:(?:,? and |,? or |, )`[^`]+`)*';

function spansIn(text: string): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, span = '']) => span);
}

/** The texts of the list after a word. */
function listed(word: string, place: string): string[] {
  return [...place.matchAll(new RegExp(`\\b${word} (${LIST})`, 'g'))].flatMap(([, list = '']) =>
    spansIn(list),
  );
}
