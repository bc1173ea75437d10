/** Imports between all tracked files of TypeScript and Python, type imports included: neither files nor folders form a circle. */
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {existsSync, readFileSync} from 'node:fs';
import {posix} from 'node:path';
import {fileURLToPath} from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** What each file, or each part of a folder, imports: files by their path in the repository, packages by their name. */
type Imports = Map<string, Set<string>>;

const STATEMENT = /^[ \t]*(?:import|export)\b(?:[^'";]*\bfrom)?\s*['"]([^'"]+)['"]/gm;
const EXPRESSION = /\bimport\s*\(\s*['"]([^'"]+)['"]/g;
const PYTHON =
  /^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n]*))|import[ \t]+([\w., ]+))/gm;
/** Folders in which Python finds absolute modules, beside the folder of the file. */
const PYTHON_PATH = ['worker-startup', 'test/worker/support', 'test/reader', 'test/reference', 'bench'];

function readRepository(): Record<string, string> {
  const tracked = execFileSync('git', ['ls-files', '*.ts', '*.mjs', '*.py'], {cwd: ROOT, encoding: 'utf8'});
  const files = tracked.split('\n').filter(file => file !== '' && existsSync(ROOT + file));
  return Object.fromEntries(files.map(file => [file, readFileSync(ROOT + file, 'utf8')]));
}

function readImports(texts: Record<string, string>): Imports {
  const reader = (file: string) => (file.endsWith('.py') ? pythonImportsOf : importsOf);
  return new Map(
    Object.entries(texts).map(([file, text]) => [
      file,
      new Set(reader(file)(file, text, name => name in texts)),
    ]),
  );
}

function importsOf(file: string, text: string): string[] {
  const names = [STATEMENT, EXPRESSION].flatMap(pattern =>
    [...text.matchAll(pattern)].map(([, name = '']) => name),
  );
  return names.map(name => (name.startsWith('.') ? posix.join(posix.dirname(file), name) : name));
}

function pythonImportsOf(file: string, text: string, isFile: (path: string) => boolean): string[] {
  const moduleAt = (path: string) => [`${path}.py`, `${path}/__init__.py`].find(isFile);
  const found = (bases: string[], dotted: string, name?: string) => {
    for (const base of bases) {
      const path = posix.join(base, dotted.replaceAll('.', '/'));
      // A name is a module itself, or belongs to the module that it comes from.
      const target = (name && moduleAt(`${path}/${name}`)) || moduleAt(path);
      if (target) return [target];
    }
    return [];
  };
  const here = posix.dirname(file);
  const bare = text.replace(/"""[\s\S]*?"""/g, '').replace(/#.*$/gm, '');
  return [...bare.matchAll(PYTHON)].flatMap(([, dots = '', module = '', inner, line = '', plain]) => {
    if (plain !== undefined)
      return plain.split(',').flatMap(name => found([here, ...PYTHON_PATH], name.trim().split(' ')[0] ?? ''));
    const above = Array(Math.max(0, dots.length - 1)).fill('..');
    const bases = dots ? [posix.join(here, ...above)] : [here, ...PYTHON_PATH];
    const names = (inner ?? line).split(',').map(name => name.trim().split(/\s/)[0] ?? '');
    return names.filter(name => name !== '').flatMap(name => found(bases, module, name));
  });
}

/** Imports between the parts of each folder. A part is a subfolder with all that it has, or `.` for the files of the folder itself. */
function importsOfFolders(imports: Imports): Map<string, Imports> {
  const folders = new Map<string, Imports>();
  for (const [file, names] of imports)
    for (const name of names) {
      if (name === file || !imports.has(name)) continue;
      const [from, to] = [file.split('/'), name.split('/')];
      const depth = from.findIndex((part, index) => part !== to[index]);
      const [a, b] = [from, to].map(path => (path.length > depth + 1 ? (path[depth] ?? '') : '.'));
      if (a === b) continue;
      const folder = from.slice(0, depth).join('/') || 'the repository';
      const parts = folders.get(folder) ?? new Map<string, Set<string>>();
      folders.set(folder, parts.set(a ?? '', (parts.get(a ?? '') ?? new Set<string>()).add(b ?? '')));
    }
  return folders;
}

/** Groups that import each other, directly or through others. */
function circles(imports: Imports): string[][] {
  const reached = new Map([...imports.keys()].map(file => [file, reachedFrom(file, imports)]));
  const reaches = (from: string, to: string) => reached.get(from)?.has(to) ?? false;
  const members = [...imports.keys()].filter(file => reaches(file, file)).sort();
  const groups = members.map(file => members.filter(other => reaches(file, other) && reaches(other, file)));
  return groups.filter(([first], index) => first === members[index]);
}

function reachedFrom(file: string, imports: Imports): Set<string> {
  const reached = new Set<string>();
  const open = [...(imports.get(file) ?? [])];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (reached.has(next)) continue;
    reached.add(next);
    open.push(...(imports.get(next) ?? []));
  }
  return reached;
}

/** Imports of the files in `folder` that leave it, and are not of these packages. */
function importsBeyond(folder: string, imports: Imports, packages: string[]): string[] {
  const inside = [...imports].filter(([file]) => file.startsWith(folder));
  return inside.flatMap(([file, names]) =>
    [...names]
      .filter(name => !name.startsWith(folder) && !packages.includes(name))
      .map(name => `${file} imports ${name}`),
  );
}

/** The one import of the domain from Node: `purity.test.ts` permits `hash` and `createHmac` alone. */
const DIGEST = 'shared/domain/digest.ts imports node:crypto';

type Rule = (imports: Imports) => string[];

const RULES = {
  'files of the product form no circle': imports =>
    circles(new Map([...imports].filter(([file]) => !/^(test|bench)\//.test(file)))).map(circle =>
      circle.join(', '),
    ),
  'the parts of a folder form no circle': imports =>
    [...importsOfFolders(imports)].flatMap(([folder, parts]) =>
      circles(parts).map(circle => `in ${folder}: ${circle.join(', ')}`),
    ),
  'shared/domain imports shared/domain and zod alone': imports =>
    importsBeyond('shared/domain/', imports, ['zod']).filter(found => found !== DIGEST),
  'the functions import shared alone': imports =>
    importsBeyond('functions/', imports, []).filter(found => /imports (?!shared\/)\w+\/.*\.ts$/.test(found)),
} satisfies Record<string, Rule>;

/** Files that break the rule, each by its text. */
const PLANTED: Record<keyof typeof RULES, Record<string, Record<string, string>>> = {
  'files of the product form no circle': {
    'two files': {'shared/a.ts': "import {b} from './b.ts';", 'shared/b.ts': "import {a} from './a.ts';"},
    'three files and a type import over several lines': {
      'shared/a.ts': "import type {\n  B,\n} from './b/b.ts';",
      'shared/b/b.ts': "export {c} from '../c.ts';",
      'shared/c.ts': "const a = await import('./a.ts');",
    },
    'a package of Python and a module of it': {
      'worker-startup/a/__init__.py': 'from .b import x',
      'worker-startup/a/b.py': 'def f():\n    from a import y',
    },
    'a module and itself': {'worker-startup/a.py': 'from . import a'},
  },
  'the parts of a folder form no circle': {
    'two folders by other files': {
      'cli/run/a.ts': "import {b} from '../views/b.ts';",
      'cli/views/b.ts': '',
      'cli/views/c.ts': "import type {D} from '../run/d.ts';",
      'cli/run/d.ts': '',
    },
    'a folder and the files above it': {
      'cli/a.ts': "import {b} from './views/b.ts';",
      'cli/views/b.ts': '',
      'cli/views/c.ts': "import {D} from '../d.ts';",
      'cli/d.ts': '',
    },
    'three folders of Python': {
      'worker-startup/w/model/a.py': 'from ..shards.b import x',
      'worker-startup/w/shards/b.py': '',
      'worker-startup/w/shards/c.py': 'import w.records.d',
      'worker-startup/w/records/d.py': '',
      'worker-startup/w/records/e.py':
        'if TYPE_CHECKING:\n    from ..model import (\n        f,  # a module\n    )',
      'worker-startup/w/model/f.py': '',
    },
  },
  'shared/domain imports shared/domain and zod alone': {
    'a port': {'shared/domain/run/run.ts': "import type {Store} from '../../ports/ports.ts';"},
    'a package': {'shared/domain/names.ts': "import {createHash} from 'node:crypto';"},
  },
  'the functions import shared alone': {
    'the emulator': {
      'functions/index.ts': "import {a} from '../emulator/cloud.ts';",
      'emulator/cloud.ts': '',
    },
  },
};

describe('imports', () => {
  const repository = readImports(readRepository());

  it('the reader of imports finds files in every folder, and imports of both languages', () => {
    for (const folder of [
      ...['shared', 'functions', 'emulator', 'cli', 'client'],
      ...['dashboard', 'worker-startup', 'test', 'bench'],
    ])
      assert.ok([...repository.keys()].filter(file => file.startsWith(`${folder}/`)).length > 5, folder);
    for (const [end, least] of [
      ['.ts', 3000],
      ['.py', 1000],
    ] as const) {
      const known = [...repository].filter(([file]) => file.endsWith(end));
      const count = known.reduce(
        (sum, [, names]) => sum + [...names].filter(name => repository.has(name)).length,
        0,
      );
      assert.ok(count > least, `${count} imports between files of ${end}`);
    }
  });

  it('the reader of imports finds every form of an import, and no text', () => {
    const text = [
      "import fs from 'node:fs';",
      "import type {\n  A,\n} from './a.ts';",
      "import '../b.ts';",
      "export {c} from './sub/c.ts';",
      "const d = await import('./d.ts');",
      "export const words = ['./text.ts'];",
      "// import {e} from './e.ts';",
    ].join('\n');
    assert.deepEqual(importsOf('shared/google/x.ts', text), [
      'node:fs',
      'shared/google/a.ts',
      'shared/b.ts',
      'shared/google/sub/c.ts',
      'shared/google/d.ts',
    ]);
  });

  for (const [name, rule] of Object.entries<Rule>(RULES))
    it(`imports keep the rule: ${name}`, () => assert.deepEqual(rule(repository), []));

  for (const [rule, planted] of Object.entries(PLANTED))
    for (const [name, files] of Object.entries(planted))
      it(`the rule "${rule}" finds ${name}`, () => {
        assert.notDeepEqual(RULES[rule as keyof typeof RULES](readImports(files)), []);
      });
});
