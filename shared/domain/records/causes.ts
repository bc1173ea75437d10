/** Why attempts of jobs end. This file imports nothing, because the help of the command shows the causes. */

/** Failures that the job itself caused, which count against `max_retries`. */
export const OWN_CAUSES = ['exit', 'timeout', 'memory', 'disk', 'output', 'result'] as const;

/**
 * Failures of a machine: the job runs again elsewhere, without using a retry. The fifth one fails the job. `tpu`: JAX found no TPU that works.
 * `checkpoint`: no stored version could be restored.
 * `peer`: JAX ended the process because another host died, so the cause of that host counts.
 */
export const MACHINE_CAUSES = ['machine', 'tpu', 'checkpoint', 'peer'] as const;

/** Causes that an agent reports. A retry cannot fix `source`, `setup` and `isolation`. */
export const REPORTED_CAUSES = [...OWN_CAUSES, 'source', 'setup', 'isolation', ...MACHINE_CAUSES] as const;

/**
 * Why an attempt ended. A retry cannot fix `invalid` (the document), `deadline` and `budget` either. `machine` includes workers that fell
 * silent or hung. `preempted` and `drained` cost the job nothing.
 */
export const CAUSES = [
  'invalid',
  ...REPORTED_CAUSES,
  'deadline',
  'budget',
  'preempted',
  'drained',
  'cancelled',
] as const;
export type Cause = (typeof CAUSES)[number];
