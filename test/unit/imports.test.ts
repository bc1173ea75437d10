/** Imports between the files of the product: no circle, pure rules, and one direction between folders. */
import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {posix} from 'node:path';
import {fileURLToPath} from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const FOLDERS = ['shared', 'functions', 'emulator', 'cli', 'dashboard'];

/** The imports of each file, type imports included: files by their path in the repository, packages by their name. */
type Imports = Map<string, string[]>;

/**
 * The order of the parts of a folder: a part imports parts of earlier lines alone. Parts in an inner list import each other. Each order
 * is a line in `RULES`.
 */
type Order = (string | string[])[][];

const ORDER_OF_REPOSITORY: Order = [['shared'], ['functions', 'emulator'], [['cli', 'dashboard']]];
const ORDER_OF_CONTROL_PLANE: Order = [
  ['calls'],
  ['documents'],
  ['caches'],
  ['deps.ts'],
  ['streams', 'runs', 'workers', 'jobs', 'execs'],
  ['tick', 'worker-api'],
  ['events', 'tasks'],
];

const ORDER_OF_SHARED: Order = [
  ['domain'],
  ['contracts'],
  ['ports'],
  ['control-plane', 'google', 'embedded'],
  ['compose.ts'],
];

const STATEMENT = /^(?:import|export)\b(?:[^'";]*\bfrom)?\s*['"]([^'"]+)['"]/gm;
const EXPRESSION = /\bimport\s*\(\s*['"]([^'"]+)['"]/g;

function importsOf(file: string, text: string): string[] {
  const names = [STATEMENT, EXPRESSION].flatMap(pattern =>
    [...text.matchAll(pattern)].map(([, name = '']) => name),
  );
  return names.map(name => (name.startsWith('.') ? posix.join(posix.dirname(file), name) : name));
}

function readImports(texts: Record<string, string>): Imports {
  return new Map(Object.entries(texts).map(([file, text]) => [file, importsOf(file, text)]));
}

function readRepository(): Record<string, string> {
  const files = FOLDERS.flatMap(folder =>
    readdirSync(ROOT + folder, {recursive: true, encoding: 'utf8'}).map(file => `${folder}/${file}`),
  );
  const sources = files.filter(file => file.endsWith('.ts'));
  return Object.fromEntries(sources.map(file => [file, readFileSync(ROOT + file, 'utf8')]));
}

/** Groups of files that import each other, directly or through other files. */
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
    names
      .filter(name => !name.startsWith(folder) && !packages.includes(name))
      .map(name => `${file} imports ${name}`),
  );
}

/** Imports inside `folder` against the order of its parts, and files without a place in that order. */
function importsAgainst(order: Order, folder: string, imports: Imports): string[] {
  const nameOf = (file: string) => file.slice(folder.length).split('/', 1)[0] ?? '';
  const lineOf = (file: string) => order.findIndex(parts => parts.flat().includes(nameOf(file)));
  const partOf = (file: string) =>
    order.flat().find(part => [part].flat().includes(nameOf(file))) ?? nameOf(file);
  const inside = [...imports].filter(([file]) => file.startsWith(folder));
  const unknown = inside.filter(([file]) => lineOf(file) < 0).map(([file]) => `${file} has no place`);
  const wrong = inside.flatMap(([file, names]) =>
    names
      .filter(name => imports.has(name) && name.startsWith(folder) && partOf(name) !== partOf(file))
      .filter(name => lineOf(name) >= lineOf(file))
      .map(name => `${file} imports ${name}`),
  );
  return [...unknown, ...wrong];
}

/** The one import of the domain from Node: `purity.test.ts` permits `hash` and `createHmac` alone. */
const DIGEST = 'shared/domain/digest.ts imports node:crypto';

type Rule = (imports: Imports) => string[];

const RULES = {
  'no files import each other in a circle': imports => circles(imports).map(circle => circle.join(', ')),
  'shared/domain imports shared/domain and zod alone': imports =>
    importsBeyond('shared/domain/', imports, ['zod']).filter(found => found !== DIGEST),
  'shared, functions, emulator, and cli with dashboard import in one direction': imports =>
    importsAgainst(ORDER_OF_REPOSITORY, '', imports),
  'the folders of the control plane import in one direction': imports =>
    importsAgainst(ORDER_OF_CONTROL_PLANE, 'shared/control-plane/', imports),
  'the parts of shared import in one direction': imports =>
    importsAgainst(ORDER_OF_SHARED, 'shared/', imports),
} satisfies Record<string, Rule>;

/** Files that break the rule, each by its text. */
const PLANTED: Partial<Record<keyof typeof RULES, Record<string, Record<string, string>>>> = {
  'no files import each other in a circle': {
    'two files': {'shared/a.ts': "import {b} from './b.ts';", 'shared/b.ts': "import {a} from './a.ts';"},
    'three files and a type import over several lines': {
      'shared/a.ts': "import type {\n  B,\n} from './b/b.ts';",
      'shared/b/b.ts': "export {c} from '../c.ts';",
      'shared/c.ts': "const a = await import('./a.ts');",
    },
    'a remaining circle with a further file': {
      'emulator/errors.ts': "import {a} from './json.ts';",
      'emulator/json.ts': "import {a} from './a.ts';",
      'emulator/a.ts': "import './errors.ts';",
    },
  },
  'shared/domain imports shared/domain and zod alone': {
    'a port': {'shared/domain/records/run.ts': "import type {Store} from '../../ports/ports.ts';"},
    'a package': {'shared/domain/names.ts': "import {createHash} from 'node:crypto';"},
  },
  'shared, functions, emulator, and cli with dashboard import in one direction': {
    'a command in an adapter': {
      'shared/google/bus.ts': "import {main} from '../../cli/main.ts';",
      'cli/main.ts': '',
    },
    'the emulator in a function': {
      'functions/index.ts': "import {a} from '../emulator/cloud.ts';",
      'emulator/cloud.ts': '',
    },
  },
  'the parts of shared import in one direction': {
    'an adapter in the control plane': {
      'shared/control-plane/deps.ts': "import {openBus} from '../google/bus.ts';",
      'shared/google/bus.ts': '',
    },
    'the control plane in a contract': {
      'shared/contracts/spec/spec.ts': "import type {Deps} from '../../control-plane/deps.ts';",
      'shared/control-plane/deps.ts': '',
    },
    'a folder without a place in the order': {'shared/utils/text.ts': ''},
  },
};

describe('imports', () => {
  const repository = readImports(readRepository());

  it('the reader of imports finds files in every folder', () => {
    for (const folder of FOLDERS)
      assert.ok([...repository.keys()].filter(file => file.startsWith(`${folder}/`)).length > 5, folder);
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
