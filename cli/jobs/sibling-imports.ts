/** Modules beside a submitted file: a job gets the file alone. */
import {existsSync, readdirSync, statSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {quoted} from '../../client/text/output.ts';

const IMPORT = /^(?:from +(\w+)[\w.]* +import\b|import +(\w[\w., ]*))/gm;

/** Says that the file imports modules from its own folder, and how they come along; undefined without such an import. */
export function siblingProblem(file: string, code: string): string | undefined {
  const folder = dirname(file);
  const names = [...code.matchAll(IMPORT)].flatMap(([, from, all = '']) =>
    from === undefined ? all.split(',').map(each => /\w+/.exec(each)?.[0] ?? '') : from,
  );
  const found = [...new Set(names)].filter(name => isModule(join(folder, name)));
  if (found.length === 0) return undefined;
  return `${file} imports ${found.join(', ')} from its own folder, and a job has the file alone: add --bundle ${quoted(folder)}`;
}

/** Folders without a Python file are data, such as those that W&B makes. */
function isModule(path: string): boolean {
  if (existsSync(`${path}.py`)) return true;
  const isFolder = statSync(path, {throwIfNoEntry: false})?.isDirectory() ?? false;
  return isFolder && readdirSync(path).some(name => name.endsWith('.py'));
}
