/**
 * Longest time of each phase of a worker, in seconds: GLEANER_BOOT_S sets `boot_s`; `contracts/settings/environment.ts` has defaults and
 * reasons. Limits on agents count served time: see served-time.ts. An extraction may make no progress for `stall_s` while it computes or
 * uploads, for `compile_s` while it compiles, for `load_s` while it loads a model. A slot waits for `retry_s` after its zone refused a node.
 */
export const LIMITS = [
  ...(['create_s', 'boot_s', 'setup_s', 'silent_s', 'stall_s', 'compile_s', 'load_s'] as const),
  ...(['drain_s', 'ask_again_s', 'repair_s', 'retry_s'] as const),
];
export type Limits = Record<(typeof LIMITS)[number], number>;
