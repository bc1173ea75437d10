#!/usr/bin/env node
// Command `gleaner`. The sources are TypeScript, which needs Node 24. An older Node starts the Node 24 that npm installed with
// the project.
import {spawn} from 'node:child_process';
import {existsSync} from 'node:fs';
import {constants} from 'node:os';
import {fileURLToPath} from 'node:url';

const main = fileURLToPath(new URL('main.ts', import.meta.url));
const bundled = fileURLToPath(new URL('../node_modules/.bin/node', import.meta.url));

if (Number(process.versions.node.split('.')[0]) >= 24) {
  await import(main);
} else if (existsSync(bundled)) {
  const child = spawn(bundled, [main, ...process.argv.slice(2)], {stdio: 'inherit'});
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
} else {
  console.error(
    'Failed to start gleaner: Node 24 is missing; run `npm ci` in the folder of gleaner, or install Node 24',
  );
  process.exit(1);
}
