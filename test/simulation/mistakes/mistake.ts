import type {Edit} from '../anchors.ts';

/** The edits of each mistake, by its name. */
export type Mistakes = Record<string, Edit[]>;
