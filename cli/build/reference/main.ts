/** Writes the generated pages and schemas of docs/, and the schema of the answers of `--json` to dist/. `npm run docs` */
import {mkdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {DIST} from '../artifacts.ts';
import {generated, outputJsonSchema} from './generated.ts';

for (const [path, text] of generated()) writeFileSync(path, text);
mkdirSync(DIST, {recursive: true});
writeFileSync(join(DIST, 'output.schema.json'), `${JSON.stringify(outputJsonSchema(), null, 2)}\n`);
