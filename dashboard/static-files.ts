/** Files of the page: its style, its script, and idiomorph of npm. */
import {hash} from 'node:crypto';
import {existsSync, readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {fileURLToPath} from 'node:url';

const TYPES: Record<string, string> = {
  'style.css': 'text/css; charset=utf-8',
  'live.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
  'idiomorph.js': 'text/javascript; charset=utf-8',
};
const MORPH = 'idiomorph/dist/idiomorph.min.js';

/** Path of a file. Code that was bundled lies in another folder beside `dashboard/`, and has a copy of idiomorph there. */
function pathOf(name: string): string {
  const own = fileURLToPath(new URL(`../dashboard/static/${name}`, import.meta.url));
  return existsSync(own) ? own : createRequire(import.meta.url).resolve(MORPH);
}

/** Path of each file by the path of its copy in a bundle. */
export function staticPaths(): Map<string, string> {
  return new Map(Object.keys(TYPES).map(name => [`dashboard/static/${name}`, pathOf(name)]));
}

export type StaticFile = {body: string; type: string};

/** The files by their names, and a hash of all of them. */
export function readStaticFiles(): {files: Map<string, StaticFile>; version: string} {
  const files = new Map(
    Object.entries(TYPES).map(([name, type]) => [name, {body: readFileSync(pathOf(name), 'utf8'), type}]),
  );
  const version = hash('sha256', [...files.values()].map(({body}) => body).join('\0')).slice(0, 8);
  return {files, version};
}
