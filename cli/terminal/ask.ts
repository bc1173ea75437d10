/** Questions before a command deletes or buys something. */
import {createInterface} from 'node:readline/promises';
import {CliError} from './errors.ts';
import {complain} from './output.ts';

/**
 * Asks whether to go on, after lines that say what is deleted and what it costs. `--yes` skips the question. Throws `CliError` after any
 * other answer than `yes`, and without a terminal.
 */
export async function requireConsent(
  consequences: readonly string[],
  {yes = false}: {yes?: boolean | undefined},
): Promise<void> {
  if (yes) return;
  for (const line of consequences) complain(line);
  if (!process.stdin.isTTY) throw new CliError('this needs an answer and there is no terminal: add --yes');
  const asker = createInterface({input: process.stdin, output: process.stderr});
  const closed = new Promise<string>(resolve => asker.once('close', () => resolve('')));
  const answer = await Promise.race([asker.question('Go on? Type yes: '), closed]);
  asker.close();
  if (answer.trim() !== 'yes') throw new CliError('nothing was changed');
}
