/** Patterns of source code. `$name` stands for any node, and `$$name` for any number of items of a list. */
import {stripTypeScriptTypes} from 'node:module';
import {isDeepStrictEqual} from 'node:util';
import {type Node, parse} from 'acorn';

export type Tree = Node & {[key: string]: unknown};
/** The nodes that each wildcard stands for. */
export type Bound = Map<string, Tree[]>;

/** The text around each kind of pattern, and the keys from the statement of both to the pattern. */
const KINDS = [
  ['(', '\n)', 'expression'],
  ['({', '\n})', 'expression.properties'],
  ['for (;;) {', '\n}', 'body.body'],
  ['switch (0) {', '\n}', 'cases'],
] as const;
/** Keys that say where and how a node is written. */
const WRITTEN = ['start', 'end', 'raw', 'shorthand'];

/** Parses an expression, a property, a statement or a `case`. */
export function parsePattern(text: string): Tree {
  for (const [before, after, keys] of KINDS) {
    let found: unknown = tryToParse(`${before}${text}${after}`);
    for (const key of keys.split('.')) found = isTree(found) ? bare(found)[key] : undefined;
    const [node, ...others] = [found].flat();
    // A function is a statement.
    if (isTree(node) && others.length === 0 && bare(node).type !== 'FunctionExpression') return bare(node);
  }
  throw new Error(`"${text}" is no expression, property, statement or case`);
}

function tryToParse(text: string): unknown {
  try {
    return childrenOf(parseModule(text))[0];
  } catch {
    return undefined;
  }
}

/** Parses TypeScript. Each node keeps its place in the text. */
export function parseTypes(text: string): Tree {
  const {emitWarning} = process;
  // Node warns that the removal of types is experimental.
  process.emitWarning = () => {};
  try {
    return parseModule(stripTypeScriptTypes(text));
  } finally {
    process.emitWarning = emitWarning;
  }
}

function parseModule(text: string): Tree {
  const options = {allowReturnOutsideFunction: true, checkPrivateFields: false, preserveParens: true};
  return parse(text, {...options, ecmaVersion: 'latest', sourceType: 'module'}) as unknown as Tree;
}

/** True if the node is like the pattern. `bound` receives the nodes of the wildcards, also if it is not. */
export function matches(pattern: unknown, given: unknown, bound: Bound): boolean {
  if (Array.isArray(pattern)) return Array.isArray(given) && matchesList(pattern, given, bound);
  if (!isTree(pattern) || !isTree(given)) return isDeepStrictEqual(pattern, given);
  const name = wildcardOf(pattern);
  if (name !== undefined) return bind(bound, name, [given]);
  const [one, other] = [bare(pattern), bare(given)];
  const keys = Object.keys(one).filter(key => !WRITTEN.includes(key));
  return one.type === other.type && keys.every(key => matches(one[key], other[key], bound));
}

function matchesList(patterns: unknown[], given: unknown[], bound: Bound): boolean {
  const [first, ...others] = patterns;
  if (first === undefined) return given.length === 0;
  const name = isTree(first) ? wildcardOf(first) : undefined;
  if (!name?.startsWith('$$'))
    return given.length > 0 && matches(first, given[0], bound) && matchesList(others, given.slice(1), bound);
  for (let count = 0; count <= given.length; count++) {
    const tried: Bound = new Map(bound);
    const items = given.slice(0, count).filter(isTree);
    if (!bind(tried, name, items) || !matchesList(others, given.slice(count), tried)) continue;
    for (const [key, nodes] of tried) bound.set(key, nodes);
    return true;
  }
  return false;
}

/** A repeated wildcard stands for equal nodes. */
function bind(bound: Bound, name: string, nodes: Tree[]): boolean {
  const known = bound.get(name);
  if (known) return matches(known, nodes, bound);
  bound.set(name, nodes);
  return true;
}

function wildcardOf(node: Tree): string | undefined {
  if (node.type === 'ExpressionStatement') return wildcardOf(node.expression as Tree);
  if (node.type === 'Property' && node.shorthand) return wildcardOf(node.key as Tree);
  return node.type === 'Identifier' && String(node.name).startsWith('$') ? String(node.name) : undefined;
}

/** The node without its parentheses. */
function bare(node: Tree): Tree {
  return node.type === 'ParenthesizedExpression' ? bare(node.expression as Tree) : node;
}

/** The node and all nodes below it, except parentheses. */
export function withDescendants(node: Tree): Tree[] {
  const below = childrenOf(node).flatMap(withDescendants);
  return node.type === 'ParenthesizedExpression' ? below : [node, ...below];
}

export function childrenOf(node: Tree): Tree[] {
  return Object.values(node).flat().filter(isTree);
}

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && 'type' in value;
}
