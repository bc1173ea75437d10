/** Commands that a person may have meant by a word that is no command. */
import type {Command} from 'commander';

/** Words for one thing. The first that is a command of the group is meant. */
const SYNONYMS = [
  ['stop', 'cancel', 'delete', 'pause', 'remove', 'rm', 'kill', 'abort', 'end', 'terminate', 'destroy'],
  ['show', 'status', 'describe', 'info', 'inspect', 'get', 'list'],
  ['list', 'status', 'ls', 'ps', 'all'],
  ['start', 'submit', 'create', 'resume', 'run', 'launch', 'new', 'make', 'add'],
  ['resume', 'unpause', 'continue', 'start'],
  ['retry', 'recreate', 'restart', 'rerun'],
  ['configure', 'set', 'update', 'edit', 'scale', 'resize'],
  ['follow', 'watch', 'tail', 'wait'],
  ['cp', 'export', 'download', 'copy', 'artifacts'],
  ['get', 'result', 'results'],
  ['upload', 'put', 'push', 'send'],
  ['create', 'split', 'prepare'],
  ['logs', 'log', 'output'],
  ['clear', 'prune', 'clean'],
];

/** Commands outside of the group, by the first of the synonyms. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  'streams list': 'gleaner status RUN',
  'streams show': 'gleaner status RUN',
  'streams stop': 'gleaner run cancel RUN --stream NUMBER',
  'run logs': 'gleaner logs RUN',
  'tpus logs': 'gleaner logs TPU',
  'pool list': 'gleaner pools',
  'pool show': 'gleaner pools',
  'pool configure': 'gleaner scale POOL',
};

/** Words of other tools for a command of the program. */
const AT_THE_TOP: Readonly<Record<string, string>> = {
  ...{list: 'status', ls: 'status', ps: 'status', show: 'status'},
  ...{workers: 'tpus', nodes: 'tpus', vms: 'tpus', ssh: 'exec', explain: 'why'},
};

/** The commands that the word may mean, as a person types them. */
export function meantBy(word: string, group: Command): string[] {
  return group.parent ? meantInGroup(word, group) : meantAtTop(word, group);
}

function meantInGroup(word: string, group: Command): string[] {
  const own = new Map(group.commands.map(command => [command.name(), pathOf(command)]));
  const meant = SYNONYMS.filter(words => words.includes(word)).flatMap(words => {
    const name = words.find(each => own.has(each));
    return (name === undefined ? ELSEWHERE[`${group.name()} ${words[0]}`] : own.get(name)) ?? [];
  });
  return [...new Set(meant)];
}

/** A group in another number, or the commands of this name in the groups. */
function meantAtTop(word: string, program: Command): string[] {
  const other = AT_THE_TOP[word];
  if (other !== undefined) return [`${program.name()} ${other}`];
  const isNumberOf = (name: string) => name === `${word}s` || `${name}s` === word;
  const named = program.commands.filter(command => isNumberOf(command.name()));
  const inGroups = program.commands.flatMap(({commands}) => commands.filter(each => each.name() === word));
  return [...named, ...inGroups].map(pathOf);
}

function pathOf(command: Command): string {
  return command.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();
}
