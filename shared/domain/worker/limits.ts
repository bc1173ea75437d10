/**
 * Longest time of each phase of a worker, in seconds. The defaults and their reasons are in `contracts/config.ts`.
 * Limits on agents count served time: see served-time.ts.
 */
export type Limits = {
  create_s: number;
  boot_s: number;
  setup_s: number;
  silent_s: number;
  /** Longest extraction without progress: while it computes or uploads, while it compiles, while it loads a model. */
  stall_s: number;
  compile_s: number;
  load_s: number;
  drain_s: number;
  ask_again_s: number;
  repair_s: number;
  /** Time that a slot waits after its zone refused a node. */
  retry_s: number;
};
