/** Loads modules with changes of their text. */
import {type LoadHookSync, type ResolveHookSync, registerHooks} from 'node:module';
import {fileURLToPath} from 'node:url';
import {ROOT} from '../support/process.ts';
import type {Splice} from './anchors.ts';

/** Modules that all copies share, because each copy must recognise the error classes of the others. */
const SHARED_BY_ALL = ['shared/contracts/errors.ts'];

/** The changes of the copies of each mark, and those of all modules under the empty mark. */
const changes = new Map<string, readonly Splice[]>();

/**
 * Changes the modules that are loaded after this call. With a mark such as `?next-release`, changes only the copies that are imported
 * with this mark, and the modules that they import.
 */
export function loadChanged(splices: readonly Splice[], mark = ''): void {
  if (changes.size === 0) registerHooks({resolve, load});
  changes.set(mark, splices);
}

const resolve: ResolveHookSync = (specifier, context, next) => {
  const resolved = next(specifier, context);
  const mark = markOf(context.parentURL);
  return changes.has(mark) && isOurs(resolved.url) ? {...resolved, url: resolved.url + mark} : resolved;
};

const load: LoadHookSync = (url, context, next) => {
  const loaded = next(url, context);
  const marks = new Set(['', markOf(url)]);
  const own = [...marks].flatMap(mark => changes.get(mark) ?? []).filter(({file}) => file === fileOf(url));
  if (own.length === 0) return loaded;
  return {...loaded, source: withChanges(Buffer.from(loaded.source as Uint8Array).toString('utf8'), own)};
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

function isOurs(url: string): boolean {
  const file = fileOf(url);
  return /^(shared|functions)\//.test(file) && !url.includes('?') && !SHARED_BY_ALL.includes(file);
}
