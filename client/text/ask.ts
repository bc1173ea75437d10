/** A question that a person at the terminal answers with yes. */
import {createInterface} from 'node:readline/promises';
import {Interrupted} from './errors.ts';

/** False after any answer but `yes`, also the end of the input. Throws `Interrupted` after Ctrl-C. */
export async function isConsent(
  question: string,
  signal?: AbortSignal,
  refused = 'Nothing is changed',
): Promise<boolean> {
  const asker = createInterface({input: process.stdin, output: process.stderr});
  const answer = await new Promise<string>((resolve, reject) => {
    // A terminal in this mode sends Ctrl-C as a key.
    asker.once('SIGINT', () => reject(new Interrupted(`Interrupted: ${refused}`)));
    asker.once('close', () => resolve(''));
    asker.question(`${question}? Type yes: `, {signal}).then(resolve, () => resolve(''));
  }).finally(() => asker.close());
  return answer.trim() === 'yes';
}
