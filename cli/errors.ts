/** What a person can mend: shown as one sentence, without a stack, and the command exits with 1. */
export class CliError extends Error {
  override name = 'CliError';
}
