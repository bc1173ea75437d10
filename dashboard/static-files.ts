/** Files of the page: its style, its script, and idiomorph of npm. */
import {hash} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {fileURLToPath} from 'node:url';

const own = (name: string) => fileURLToPath(new URL(`./static/${name}`, import.meta.url));
const resolve = createRequire(import.meta.url).resolve;

const FILES: Record<string, {path: string; type: string}> = {
  'style.css': {path: own('style.css'), type: 'text/css; charset=utf-8'},
  'live.js': {path: own('live.js'), type: 'text/javascript; charset=utf-8'},
  'icon.svg': {path: own('icon.svg'), type: 'image/svg+xml'},
  'idiomorph.js': {path: resolve('idiomorph/dist/idiomorph.min.js'), type: 'text/javascript; charset=utf-8'},
};

export type StaticFile = {body: string; type: string};

/** The files by their names, and a hash of all of them. */
export function readStaticFiles(): {files: Map<string, StaticFile>; version: string} {
  const files = new Map(
    Object.entries(FILES).map(([name, {path, type}]) => [name, {body: readFileSync(path, 'utf8'), type}]),
  );
  const version = hash('sha256', [...files.values()].map(({body}) => body).join('\0')).slice(0, 8);
  return {files, version};
}
