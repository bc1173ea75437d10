/** Writes the generated pages and schemas of docs/. `npm run docs` */
import {writeFileSync} from 'node:fs';
import {generated} from './generated.ts';

for (const [path, text] of generated()) writeFileSync(path, text);
