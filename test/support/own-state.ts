/** The marks of the local clouds of tests go to a folder of their own, in place of the state folder of the user. */
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

const folder = mkdtempSync(join(tmpdir(), 'gleaner-state-'));
process.env.XDG_STATE_HOME = folder;
process.env.XDG_CONFIG_HOME = folder;
process.once('exit', () => rmSync(folder, {recursive: true, force: true}));
