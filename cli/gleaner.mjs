#!/usr/bin/env node
// The `gleaner` command. The sources are TypeScript, which Node runs from version 24 on: an older one hands over to the
// Node 24 that npm installed with the project.
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
  console.error('Failed to start gleaner: it needs Node 24. Run `npm ci` in its folder, or install Node 24.');
  process.exit(1);
}
