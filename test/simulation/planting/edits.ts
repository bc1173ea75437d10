/** Loads modules with changes of their text. */
import {globSync, readFileSync} from 'node:fs';
import {type LoadHookSync, type ResolveHookSync, registerHooks, stripTypeScriptTypes} from 'node:module';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {ROOT} from '../../support/machine/process.ts';
import type {Splice} from './anchors.ts';

const IMPORT = /^(?:import|export) (?!type )[^;']*'(\.[^']+)';/gm;
/** Modules that all copies share, because each copy must recognise the error classes of the others. */
const SHARED_BY_ALL = ['shared/contracts/errors.ts'];

/** The changes of each mark, and the files that need a copy: the changed ones, and all that import them. */
const changes = new Map<string, {splices: readonly Splice[]; copied: ReadonlySet<string>}>();

/** Changes the modules that are imported with a mark, such as `?next-release`, and the modules that they import. */
export function loadChanged(splices: readonly Splice[], mark: string): void {
  if (changes.size === 0) registerHooks({resolve, load});
  changes.set(mark, {splices, copied: withImporters(splices.map(({file}) => file))});
}

/** The addresses of the modules that a file imports are the same in each copy. */
const addresses = new Map<string, ReturnType<ResolveHookSync>>();

const resolve: ResolveHookSync = (specifier, context, next) => {
  const mark = markOf(context.parentURL);
  const copied = changes.get(mark)?.copied;
  if (!copied) return next(specifier, context);
  const key = `${specifier} ${context.parentURL?.slice(0, -mark.length)}`;
  const resolved = addresses.get(key) ?? next(specifier, context);
  addresses.set(key, resolved);
  return {
    ...resolved,
    url: copied.has(fileOf(resolved.url)) ? resolved.url + mark : resolved.url,
    shortCircuit: true,
  };
};

/** The JavaScript of the files that are copied as they are. */
const scripts = new Map<string, string>();

const load: LoadHookSync = (url, context, next) => {
  const splices = changes.get(markOf(url))?.splices;
  if (!splices) return next(url, context);
  const file = fileOf(url);
  const own = splices.filter(splice => splice.file === file);
  const known = own.length === 0 ? scripts.get(file) : undefined;
  const source = known ?? stripTypeScriptTypes(withChanges(readFileSync(`${ROOT}${file}`, 'utf8'), own));
  if (own.length === 0) scripts.set(file, source);
  return {format: 'module', source, shortCircuit: true};
};

export function withChanges(text: string, splices: readonly Splice[]): string {
  let [changed, next] = [text, text.length];
  for (const {file, start, end, text} of splices.toSorted((a, b) => b.start - a.start)) {
    if (end > next) throw new Error(`Two changes of ${file} overlap at ${start}`);
    changed = changed.slice(0, start) + text + changed.slice(end);
    next = start;
  }
  return changed;
}

function markOf(url = ''): string {
  return url.startsWith('file:') ? new URL(url).search : '';
}

function fileOf(url: string): string {
  return url.startsWith('file:') ? fileURLToPath(url).replace(ROOT, '') : url;
}

/** The files, and all files of the control plane that import them, directly or not. */
function withImporters(files: readonly string[]): Set<string> {
  importers ??= readImporters();
  const found = new Set<string>();
  for (const queue = [...files]; queue.length > 0; ) {
    const file = queue.pop() ?? '';
    if (found.has(file) || SHARED_BY_ALL.includes(file)) continue;
    found.add(file);
    queue.push(...(importers.get(file) ?? []));
  }
  return found;
}

let importers: ReadonlyMap<string, readonly string[]> | undefined;

/** By file of the control plane: the files that import it. An import of types loads nothing. */
function readImporters(): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const file of globSync('{shared,functions}/**/*.ts', {cwd: ROOT}))
    for (const [, path = ''] of readFileSync(`${ROOT}${file}`, 'utf8').matchAll(IMPORT)) {
      const imported = join(file, '..', path);
      found.set(imported, [...(found.get(imported) ?? []), file]);
    }
  return found;
}
