/** Modules beside a submitted file: a job gets the file alone. */
import {globSync} from 'node:fs';
import {dirname} from 'node:path';
import {quoted} from '../../client/text/output.ts';
import type {Finding} from '../checks/findings.ts';

const IMPORT = /^(?:from +(\w+)[\w.]* +import\b|import +(\w[\w., ]*))/gm;

/** Says which modules of its own folder a file imports, and how they come along. */
export function siblingProblems(file: string, code: string): Finding[] {
  const folder = dirname(file);
  const names = [...code.matchAll(IMPORT)].flatMap(([, from, all = '']) =>
    from === undefined ? all.split(',').map(each => /\w+/.exec(each)?.[0] ?? '') : from,
  );
  // Folders without a Python file are data, such as those that W&B makes.
  const isModule = (name: string) => globSync([`${name}.py`, `${name}/*.py`], {cwd: folder}).length > 0;
  const found = [...new Set(names)].filter(name => name !== '' && isModule(name));
  if (found.length === 0) return [];
  const problem = `${file} imports ${found.join(', ')} from its own folder, and a job has the file alone: add --bundle ${quoted(folder)}`;
  return [{problem}];
}
