import {loadEdited} from './edits.ts';
import {BLAME} from './mistakes/blame.ts';
import {DOUBLE} from './mistakes/double.ts';
import {FORGE} from './mistakes/forge.ts';
import {JOBS} from './mistakes/jobs.ts';
import {LEAK} from './mistakes/leak.ts';
import {LOSE} from './mistakes/lose.ts';
import type {Mistake} from './mistakes/mistake.ts';
import {OVERSPEND} from './mistakes/overspend.ts';
import {POOLS} from './mistakes/pools.ts';
import {STICK} from './mistakes/stick.ts';

export const MISTAKES: Mistake[] = [
  ...[...LOSE, ...DOUBLE, ...LEAK, ...OVERSPEND, ...STICK, ...BLAME, ...FORGE],
  ...JOBS,
  ...POOLS,
];

/** Edits the modules that are loaded after this call, so that they have the mistake. */
export function plant({name, edits}: Mistake): void {
  loadEdited(name, edits);
}
