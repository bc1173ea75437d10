#!/usr/bin/env node
// Command `gleaner`. The sources are TypeScript, which needs Node 24. An older Node starts the Node 24 that npm installed with
// the project. Node keeps the compiled sources in a folder of this user, which halves the start of a command.
import {spawn} from 'node:child_process';
import {existsSync} from 'node:fs';
import * as nodeModule from 'node:module';
import {constants, homedir} from 'node:os';
import {join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';

const main = fileURLToPath(new URL('main.ts', import.meta.url));
const bundled = fileURLToPath(new URL('../node_modules/.bin/node', import.meta.url));
const compiled = resolve(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'gleaner', 'compiled');

if (Number(process.versions.node.split('.')[0]) >= 24) {
  // The functions of a local cloud are processes of their own, and use the folder too.
  process.env.NODE_COMPILE_CACHE ??= compiled;
  nodeModule.enableCompileCache(process.env.NODE_COMPILE_CACHE);
  await import(main);
} else if (existsSync(bundled)) {
  const env = {NODE_COMPILE_CACHE: compiled, ...process.env};
  // The channel closes when this process ends, however it ends.
  const stdio = ['inherit', 'inherit', 'inherit', 'ipc'];
  const child = spawn(bundled, [main, ...process.argv.slice(2)], {stdio, env});
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
} else {
  console.error(
    'Failed to start gleaner: Node 24 is missing; run `npm ci` in the folder of gleaner, or install Node 24',
  );
  process.exit(1);
}
