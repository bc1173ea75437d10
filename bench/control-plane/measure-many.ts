/** A scene of many runs in a process of its own. Prints its figures. */
import {MANY_SCENES} from './many-runs.ts';

const [name = ''] = process.argv.slice(2);
console.log(JSON.stringify([await MANY_SCENES[name]?.()].flat()));
