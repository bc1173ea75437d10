/** The question before a command deletes or buys something. */
import {isConsent} from '../../client/text/ask.ts';
import {CliError} from '../../client/text/errors.ts';
import {cloudNamed, complain} from '../../client/text/output.ts';

/** Throws `CliError` where a question has neither `--yes` nor a terminal. */
export function requireTerminal({yes = false}: {yes?: boolean | undefined}): void {
  if (!yes && !process.stdin.isTTY)
    throw new CliError('This command asks first, and no terminal can answer: add --yes');
}

/**
 * Asks for consent after lines about the consequences. `--yes` skips the question. Throws `CliError` without a terminal, and after any
 * answer but `yes`, also the end of the input. Throws `Interrupted` after Ctrl-C. `refused`: what both then say.
 */
export async function requireConsent(
  consequences: readonly string[],
  {
    yes,
    signal,
    refused = 'Nothing is changed',
  }: {yes?: boolean | undefined; signal?: AbortSignal; refused?: string},
): Promise<void> {
  if (yes) return;
  for (const line of consequences) complain(line);
  requireTerminal({yes});
  const cloud = cloudNamed();
  if (!(await isConsent(`Go on${cloud ? ` in the cloud ${cloud}` : ''}`, signal, refused)))
    throw new CliError(`${refused}: the answer was not yes`);
}
