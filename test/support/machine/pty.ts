/** A command in a pseudo-terminal, as `script` of util-linux makes one. */
import {spawn} from 'node:child_process';

/** Keys of a person. */
export const CTRL_C = '\u0003';
export const CTRL_D = '\u0004';

export type Shown = {code: number | null; text: string};

/** Runs the command, and types the keys once `prompt` is shown. The text has the output and the echo of the keys. */
export function inTerminal(
  words: readonly string[],
  {prompt, keys, cwd, env = {}}: {prompt: string; keys: string; cwd: string; env?: Record<string, string>},
): Promise<Shown> {
  const line = words.map(word => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
  const child = spawn('script', ['--quiet', '--return', '--command', line, '/dev/null'], {
    cwd,
    env: {...process.env, ...env},
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let text = '';
  let isTyped = false;
  child.stdout.on('data', chunk => {
    text += chunk;
    if (isTyped || !text.includes(prompt)) return;
    isTyped = true;
    child.stdin.write(keys);
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', code => resolve({code, text}));
  });
}
