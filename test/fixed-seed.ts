/**
 * Property tests try the same cases on the same commit, as the simulator and the Python tests do: a build never fails
 * by chance. `GLEANER_SEED=random npm test mocha` looks for other cases, `GLEANER_SEED=N` at those of one seed.
 */
import fc from 'fast-check';

const seed = process.env.GLEANER_SEED ?? '1';
if (seed !== 'random') fc.configureGlobal({seed: Number(seed)});
