/** Finds the place of an edit by a function and an expression. Another name, file or format of the sources keeps the place. */
import {globSync, readFileSync} from 'node:fs';
import {distance} from 'fastest-levenshtein';
import {ROOT} from '../../support/machine/process.ts';
import {
  type Bound,
  childrenOf,
  matches,
  parsePattern,
  parseTypes,
  type Tree,
  withDescendants,
} from './pattern.ts';

export type Edit = {
  /** The function, class or constant that has the place. If none of this name has it, all sources are searched. */
  in: string;
  /** A pattern around the place. */
  within?: string;
  /** The pattern of the place. */
  find: string;
  /** A wildcard of `find`. The place is then the value of the constant that it stands for. */
  constant?: string;
  /** Repeats wildcards. Without it, the statement or the property is removed. */
  replace?: string;
};

/** Mistakes by name, with one edit or several. */
export type Mistakes = Record<string, Edit | Edit[]>;

/** A change of a file: `text` replaces the characters from `start` to `end`. */
export type Splice = {file: string; start: number; end: number; text: string};

type Module = {file: string; text: string; tree: Tree; nodes: Tree[]};
type Place = {module: Module; node: Tree; bound: Bound};

const WILDCARD = /(\$\$?[a-zA-Z]\w*)(\s*,)?/g;
const WORD = /(?<![\w$])[a-zA-Z]\w*/g;

/** The sources of the control plane. A file is parsed when a pattern first needs it. */
export class Sources {
  readonly #texts: ReadonlyMap<string, string>;
  readonly #modules = new Map<string, Module>();

  /** The text of each file. */
  constructor(texts: ReadonlyMap<string, string>) {
    this.#texts = texts;
  }

  splice(edit: Edit, {module, node, bound} = this.find(edit)): Splice {
    const {start, end} = edit.constant ? constantOf(module, bound.get(edit.constant)?.[0]) : node;
    const replacement = edit.replace || (node.type === 'Property' ? '...{}' : ';');
    const text = replacement.replace(WILDCARD, (_, name: string, comma = '') => {
      const nodes = bound.get(name);
      if (!nodes) throw new Error(`${edit.find} has no ${name}`);
      return nodes.length > 0 ? textOf(module, nodes) + comma : '';
    });
    return narrow(module.text, {file: module.file, start, end, text});
  }

  /** The only place of the edit. Throws an error with the nearest places if there is none, and with all if there are several. */
  find(edit: Edit): Place {
    const all = this.#search(edit.find, edit.within ? this.#search(edit.within) : undefined);
    const own = all.filter(place => isIn(edit.in, place));
    const found = own.length > 0 ? own : all;
    if (found[0] && found.length === 1) return found[0];
    const near = found.length > 0 ? found : this.#nearest(edit);
    const shown = near.map(({module, node}) => `\n  ${module.file}: ${textOf(module, [node])}`).join('');
    const what = edit.within ? `${edit.find} within ${edit.within}` : edit.find;
    throw new Error(`${edit.in} has ${found.length} places of ${what}; the nearest are${shown}`);
  }

  /** The nodes, in these places or in all files, that match the pattern. */
  #search(pattern: string, around?: Place[]): Place[] {
    const tree = parsePattern(pattern);
    return (around ?? this.#wholeFiles(pattern.match(WORD) ?? [])).flatMap(({module, node: outer, bound}) =>
      module.nodes
        .filter(node => node.type === tree.type && isAround(outer, node))
        .map(node => ({module, node, bound: new Map(bound)}))
        .filter(place => matches(tree, place.node, place.bound)),
    );
  }

  /** The files that have all the words. */
  #wholeFiles(words: readonly string[]): Place[] {
    const files = [...this.#texts].filter(([, text]) => words.every(word => text.includes(word)));
    return files.map(([file, text]) => {
      const module = this.#modules.get(file) ?? toModule(file, text);
      this.#modules.set(file, module);
      return {module, node: module.tree, bound: new Map()};
    });
  }

  /** The nodes that are written most like the edit: in its function, or in all files if there is no such function. */
  #nearest(edit: Edit): Place[] {
    const {type} = parsePattern(edit.find);
    const all = this.#wholeFiles([]).flatMap(({module, bound}) =>
      module.nodes.filter(node => node.type === type).map(node => ({module, node, bound})),
    );
    const own = all.filter(place => isIn(edit.in, place));
    const unlike = ({module, node}: Place) => distance(textOf(module, [node]), edit.find);
    return (own.length > 0 ? own : all).toSorted((a, b) => unlike(a) - unlike(b)).slice(0, 3);
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

function isIn(name: string, {module, node}: Place): boolean {
  return module.nodes.some(each => nameOf(each) === name && isAround(each, node));
}

function toModule(file: string, text: string): Module {
  const tree = parseTypes(text);
  return {file, text, tree, nodes: withDescendants(tree)};
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

/** The value of a constant at the top of a file. */
function constantOf({file, tree}: Module, name: Tree | undefined): Tree {
  const statements = childrenOf(tree).flatMap(each => [each, ...childrenOf(each)]);
  const found = statements.flatMap(childrenOf).find(each => nameOf(each) === name?.name && each.init);
  if (!found) throw new Error(`${file} has no constant ${name?.name}`);
  return found.init as Tree;
}

function textOf({text}: Module, nodes: readonly Tree[]): string {
  return text.slice(nodes[0]?.start, nodes.at(-1)?.end ?? 0);
}

function isAround(outer: Tree, inner: Tree): boolean {
  return outer.start <= inner.start && inner.end <= outer.end;
}

/** The name of a function, a class, a variable or a member of a class. */
function nameOf(node: Tree): unknown {
  const name = node.id ?? (/^(Method|Property)Definition$/.test(node.type) ? node.key : undefined);
  return (name as Tree | null | undefined)?.name;
}
