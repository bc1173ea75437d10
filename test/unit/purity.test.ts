import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {posix} from 'node:path';
import {fileURLToPath} from 'node:url';

const DOMAIN = fileURLToPath(new URL('../../shared/domain/', import.meta.url));

/** Code that a rule must not contain. Comments and the text of strings are removed before the search. */
const FORBIDDEN: [RegExp, string][] = [
  [/\bDate\s*\.\s*now\b/, 'reads the clock'],
  [/\bnew\s+Date\b(?!\s*\(\s*[^\s)])/, 'reads the clock'],
  [/(?<!new\s+)(?<![\w.])Date\s*\(/, 'reads the clock'],
  [/\bperformance\b/, 'reads the clock'],
  [/\bMath\s*\.\s*random\b|\bcrypto\b/, 'makes chance'],
  [/\bprocess\b|\bglobalThis\b/, 'looks at its environment'],
  [/\b(setTimeout|setInterval|setImmediate|queueMicrotask)\b/, 'waits'],
  [/\b(await|async|Promise|fetch)\b/, 'does input or output'],
  [/\bconsole\b/, 'prints'],
  [/\brequire\b|\bimport\s*\(|\bimport\s*\.\s*meta\b/, 'loads code while it runs'],
  [/^(let|var)\s/m, 'keeps state between calls'],
];

const HASH = /^import \{createHmac, hash\} from 'node:crypto';$/m;

/** Impure parts of the text of a rule. `file` is its path in the domain. */
function impurities(text: string, file = 'rule.ts'): string[] {
  const found: string[] = [];
  const code = text.replace(HASH, '').replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, ' ');
  for (const [, path] of code.matchAll(/\b(?:from|import)\s*['"]([^'"]+)['"]/g))
    if (!isRule(path ?? '', file)) found.push(`imports ${path}, which is no rule`);
  const bare = code.replace(/'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/g, "''");
  for (const [pattern, what] of FORBIDDEN) if (pattern.test(bare)) found.push(what);
  return found;
}

/** Rules may describe their documents by schemas of zod, and name and prove content by a hash. Both are pure. */
function isRule(path: string, from: string): boolean {
  if (path === 'zod') return true;
  const target = posix.join(posix.dirname(from), path);
  return path.startsWith('.') && !target.startsWith('..') && target.endsWith('.ts');
}

describe('the rules are pure', () => {
  const files = readdirSync(DOMAIN, {recursive: true, encoding: 'utf8'}).filter(file => file.includes('.'));

  it('finds the rules', () => {
    assert.ok(files.includes('records/worker.ts') && files.includes('stream/lease.ts'), files.join());
    assert.deepEqual(
      files.filter(file => !file.endsWith('.ts')),
      [],
    );
  });

  for (const file of files)
    it(`shared/domain/${file} imports rules only and does nothing but decide`, () => {
      assert.deepEqual(impurities(readFileSync(DOMAIN + file, 'utf8'), file), []);
    });

  const planted = [
    {name: 'a Node module', text: "import {readFileSync} from 'node:fs';"},
    {name: 'a package', text: 'import {parse} from "csv-parse";'},
    {name: 'a port', text: "import type {Store} from '../ports.ts';"},
    {name: 'a side effect', text: "import '../shell/log.ts';"},
    {name: 'an export from elsewhere', text: "export {loadConfig} from '../config.ts';"},
    {name: 'several lines', text: "import {\n  a,\n  b,\n} from '../shell/look.ts';"},
    {name: 'a late import', text: "const fs = import('node:fs');"},
    {name: 'the clock', text: 'const now = Date.now();'},
    {name: 'the clock without brackets', text: 'const now = new Date;'},
    {name: 'the clock in an object', text: 'const now = new Date( );'},
    {name: 'the clock as text', text: 'const now = Date();'},
    {name: 'chance', text: 'const dice = Math.random();'},
    {name: 'an id', text: 'const id = crypto.randomUUID();'},
    {name: 'the environment', text: 'const zone = process.env.ZONE;'},
    {name: 'a timer', text: 'setTimeout(() => {}, 1);'},
    {name: 'a promise', text: 'export async function decide() {}'},
    {name: 'memory', text: 'let calls = 0;'},
    {name: 'the clock inside a template', text: 'const text = `it is $' + '{Date.now()}`;'},
  ];
  for (const {name, text} of planted)
    it(`would find ${name}`, () => assert.notDeepEqual(impurities(`${text}\n`), []));

  it('accepts a rule that imports rules', () => {
    const text = [
      '/** Not Date.now(): time is passed in. */',
      "import type {Run} from './run.ts';",
      "import {iso} from './time.ts'; // process it",
      "const reason = 'process.env and Date.now() are words here';",
      'const then = new Date(ms).toISOString();',
      'function f() {\n  let sum = 0;\n}',
    ].join('\n');
    assert.deepEqual(impurities(text), []);
  });
});
