/**
 * Property tests try the same cases on every run, as the simulator and the Python tests do: a build never fails by chance.
 * `GLEANER_SEED=random npm test unit` tries other cases, `GLEANER_SEED=N` repeats the cases of a seed.
 */
import fc from 'fast-check';

const seed = process.env.GLEANER_SEED ?? '1';
if (seed !== 'random') fc.configureGlobal({seed: Number(seed)});
