/** Loads modules with edits of their text. */
import {registerHooks} from 'node:module';
import {fileURLToPath} from 'node:url';

export type Edit = {file: string; find: string; replace: string};

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Modules that all copies share, because each copy must recognise the error classes of the others. */
const SHARED_BY_ALL = ['shared/contracts/errors.ts'];

/**
 * Edits all modules that are loaded after this call. With a mark such as `?next-release`, edits only the copies that are imported
 * with this mark, and the modules that they import. Throws unless a file has the text exactly once.
 */
export function loadEdited(name: string, edits: readonly Edit[], mark = ''): void {
  registerHooks({
    resolve(specifier, context, next) {
      const resolved = next(specifier, context);
      const isCopied = mark !== '' && context.parentURL?.endsWith(mark) && isOurs(resolved.url);
      return isCopied ? {...resolved, url: resolved.url + mark} : resolved;
    },
    load(url, context, next) {
      const loaded = next(url, context);
      const own =
        url.endsWith(mark) && url.startsWith('file:') ? edits.filter(edit => edit.file === fileOf(url)) : [];
      if (own.length === 0) return loaded;
      let source = Buffer.from(loaded.source as Uint8Array).toString('utf8');
      for (const {find, replace} of own) {
        if (source.split(find).length !== 2)
          throw new Error(`Failed to edit for "${name}": ${fileOf(url)} has no single ${find}`);
        source = source.replace(find, () => replace);
      }
      return {...loaded, source};
    },
  });
}

function fileOf(url: string): string {
  return fileURLToPath(url).replace(ROOT, '');
}

function isOurs(url: string): boolean {
  if (!url.startsWith('file:') || url.includes('?')) return false;
  const file = fileOf(url);
  return (file.startsWith('shared/') || file.startsWith('functions/')) && !SHARED_BY_ALL.includes(file);
}
