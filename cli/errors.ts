/** What a person can mend: shown as one sentence, without a stack, and the command exits with 1. */
export class CliError extends Error {
  override name = 'CliError';
}

/** Ctrl-C before the command had anything to stop; it exits with 130, as a shell expects. */
export class Interrupted extends CliError {
  override name = 'Interrupted';
}
