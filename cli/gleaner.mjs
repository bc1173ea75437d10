#!/usr/bin/env node
// Command `gleaner`. The sources are TypeScript, which needs Node 24. An older Node starts the Node 24 that npm installed with
// the project. The first command leaves each program as one file, and Node keeps what it compiled in a folder of this user.
import {spawn} from 'node:child_process';
import {existsSync} from 'node:fs';
import * as nodeModule from 'node:module';
import {constants, homedir} from 'node:os';
import {join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const bundled = join(root, 'node_modules/.bin/node');
const compiled = resolve(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'gleaner', 'compiled');

if (Number(process.versions.node.split('.')[0]) >= 24) {
  // The functions of a local cloud are processes of their own, and use the folder too.
  process.env.NODE_COMPILE_CACHE ??= compiled;
  nodeModule.enableCompileCache(process.env.NODE_COMPILE_CACHE);
  const {keepFiles, keptFile} = await import('../emulator/functions/one-file.ts');
  const file = keptFile(root, 'cli');
  await (file ? nodeModule.createRequire(file)(file) : await import('./main.ts')).ended;
  // A folder of somebody else stays as it is.
  if (!file) await keepFiles(root).catch(() => {});
} else if (existsSync(bundled)) {
  const env = {NODE_COMPILE_CACHE: compiled, ...process.env};
  // The channel closes when this process ends, however it ends.
  const stdio = ['inherit', 'inherit', 'inherit', 'ipc'];
  const child = spawn(bundled, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {stdio, env});
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
} else {
  console.error(
    'Failed to start gleaner: Node 24 is missing; run `npm ci` in the folder of gleaner, or install Node 24',
  );
  process.exit(1);
}
