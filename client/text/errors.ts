/** Error that a person can fix. The command prints one sentence without a stack and exits with 1. */
export class CliError extends Error {
  override name = this.constructor.name;
}

/** Ctrl-C during the start of a command, which then exits with 130. */
export class Interrupted extends CliError {}

/** Command line that no parser of one option can judge. The command exits with 2. */
export class UsageError extends CliError {}
