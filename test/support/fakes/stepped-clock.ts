import type {Clock} from '../../../cli/deploy/until-ready.ts';

/** A clock that steps in place of a wait. */
export function steppedClock(): Clock {
  let now_ms = 0;
  return {
    now: () => now_ms,
    sleep: async seconds => {
      now_ms += seconds * 1000;
    },
  };
}
