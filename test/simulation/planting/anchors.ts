/** Finds the place of an edit by a function and a pattern of ast-grep. Another file, line or format of the sources keeps the place. */
import {globSync, readFileSync} from 'node:fs';
import {stripTypeScriptTypes} from 'node:module';
import {type NapiConfig, parse, type SgNode} from '@ast-grep/napi';
import {ROOT} from '../../support/machine/process.ts';
import type {ConditionName} from '../conditions/conditions.ts';

/** The patterns are ast-grep's: `$NAME` stands for any node, `$$$NAME` for any number of items of a list. */
export type Edit = {
  /** The function, class or constant that has the place, or the end of its file's name. If none of this name has it, all sources are searched. */
  in: string;
  /** A pattern around the place. */
  within?: string;
  /** The pattern of the place: an expression, a property, a statement or a `case`. */
  find: string;
  /** Repeats names of the patterns. Without it, the statement or the property is removed. */
  replace?: string;
};

/** Mistakes by name, with one edit or several. The worlds of a condition show them, by default those of `storm`. */
export type Mistakes = Record<string, (Edit | {edits: Edit[]}) & {shown_by?: ConditionName}>;

/** A change of a file: `text` replaces the characters from `start` to `end`. */
export type Splice = {file: string; start: number; end: number; text: string};

type Rule = NapiConfig['rule'];
type Place = {file: string; node: SgNode};

const NAME = /\$(\$\$)?([A-Z_]+)(\s*,)?/g;
const WORD = /(?<![\w$])[a-zA-Z]\w*/g;

/** The code around a pattern that is no statement, and the kind of the pattern's node. */
const CONTEXTS = [
  [/^case /, 'switch (0) {', '}', 'switch_case'],
  [/^[\w$]+: /, '({', '})', 'pair'],
  [/^\{/, '(', ')', 'object'],
] as const;

/** The sources of the control plane. A file is parsed when a pattern first needs it. */
export class Sources {
  readonly #texts: ReadonlyMap<string, string>;
  readonly #roots = new Map<string, SgNode>();

  /** The text of each file. */
  constructor(texts: ReadonlyMap<string, string>) {
    this.#texts = texts;
  }

  splice(edit: Edit): Splice {
    const {file, node} = this.find(edit);
    const source = this.#texts.get(file) ?? '';
    const {start, end} = node.range();
    const replacement = edit.replace || (node.kind() === 'pair' ? '...{}' : ';');
    const text = replacement.replace(NAME, (_, many, name: string, comma = '') => {
      const nodes = many
        ? node.getMultipleMatches(name).filter(each => each.isNamed())
        : [node.getMatch(name)];
      const [first, last] = [nodes[0], nodes.at(-1)];
      if (!first || !last) {
        if (many) return '';
        throw new Error(`${edit.find} has no ${name}`);
      }
      return source.slice(first.range().start.index, last.range().end.index) + comma;
    });
    return narrow(source, {file, start: start.index, end: end.index, text});
  }

  /** The only place of the edit. Throws an error with all places if there is none, or if there are several. */
  find({in: name, within, find}: Edit): Place {
    const words = `${find} ${within ?? ''}`.match(WORD) ?? [];
    const around: Rule[] = within ? [{inside: {...ruleOf(within), stopBy: 'end'}}] : [];
    const owner: Rule = {inside: {has: {field: 'name', regex: `^${name}$`}, stopBy: 'end'}};
    const all = this.#search(words, {all: [ruleOf(find), ...around]});
    const own = all.filter(({file, node}) => file.endsWith(name) || node.matches({rule: owner}));
    const found = own.length > 0 ? own : all;
    if (found[0] && found.length === 1) return found[0];
    const shown = found.map(({file, node}) => `\n  ${file}: ${node.text()}`).join('');
    const what = within ? `${find} within ${within}` : find;
    throw new Error(`${name} has ${found.length} places of ${what}${shown}`);
  }

  /** The nodes that the rule finds in the files that have all the words. */
  #search(words: readonly string[], rule: Rule): Place[] {
    const files = [...this.#texts].filter(([, text]) => words.every(word => text.includes(word)));
    return files.flatMap(([file, text]) => {
      const root = this.#roots.get(file) ?? parse('JavaScript', withoutTypes(text)).root();
      this.#roots.set(file, root);
      return root.findAll({rule}).map(node => ({file, node}));
    });
  }
}

function ruleOf(pattern: string): Rule {
  // A list of statements has no semicolon.
  const text = pattern.replace(/(\$\$\$\w+);/g, '$1\n');
  const strictness = 'relaxed';
  for (const [start, before, after, selector] of CONTEXTS) {
    const context = `${before}${text}${after}`;
    if (
      start.test(text) &&
      !parse('JavaScript', context)
        .root()
        .find({rule: {kind: 'ERROR'}})
    )
      return {pattern: {context, selector, strictness}};
  }
  return {pattern: {context: text, strictness}};
}

/** The text with spaces in place of its types. */
function withoutTypes(text: string): string {
  const {emitWarning} = process;
  // Node warns that the removal of types is experimental.
  process.emitWarning = () => {};
  try {
    return stripTypeScriptTypes(text);
  } finally {
    process.emitWarning = emitWarning;
  }
}

export function readTexts(): Map<string, string> {
  const files = globSync('shared/**/*.ts', {cwd: ROOT}).sort();
  return new Map(files.map(file => [file, readFileSync(`${ROOT}${file}`, 'utf8')]));
}

let stored: Sources | undefined;

/** The changes that the edits make of the stored sources. */
export function spliceAll(edits: readonly Edit[]): Splice[] {
  const sources = stored ?? new Sources(readTexts());
  stored = sources;
  return edits.map(edit => sources.splice(edit));
}

/** The change without the start and the end that it keeps. At the end, spaces and commas count for nothing. */
function narrow(source: string, {file, start, end, text}: Splice): Splice {
  let [from, to, first, last] = [start, end, 0, text.length];
  for (; from < to && source[from] === text[first]; from++) first++;
  for (let [left, right] = [to, last]; left > from && right > first; left--, right--) {
    while (left > from && /[\s,]/.test(source[left - 1] ?? '')) left--;
    while (right > first && /[\s,]/.test(text[right - 1] ?? '')) right--;
    if (source[left - 1] !== text[right - 1]) break;
    [to, last] = [left - 1, right - 1];
  }
  return {file, start: from, end: to, text: text.slice(first, last)};
}
