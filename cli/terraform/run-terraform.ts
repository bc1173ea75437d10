import {spawn} from 'node:child_process';
import {CliError} from '../../client/text/errors.ts';

export type Ended = {code: number; stdout: string; stderr: string};

type TerraformOptions = {
  folder: string;
  env?: Record<string, string>;
  /** Interrupts Terraform, which then ends in order. */
  stop?: AbortSignal;
  /** Gets the output while Terraform works. */
  show?: (chunk: string) => void;
};

/** Runs terraform in a folder. Throws `CliError` without the program. */
export function runTerraform(
  args: string[],
  {folder, env = {}, stop, show}: TerraformOptions,
): Promise<Ended> {
  const TF_CLI_ARGS = `${process.env.TF_CLI_ARGS ?? ''} -no-color`;
  return new Promise((resolve, reject) => {
    const child = spawn('terraform', [`-chdir=${folder}`, ...args], {
      cwd: folder,
      env: {...process.env, CHECKPOINT_DISABLE: '1', TF_IN_AUTOMATION: '1', TF_CLI_ARGS, ...env},
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own: Terraform ends in order after one interrupt, and at once after a second one.
      detached: stop !== undefined,
    });
    const interrupt = () => child.kill('SIGINT');
    stop?.addEventListener('abort', interrupt, {once: true});
    const texts = {stdout: '', stderr: ''};
    for (const name of ['stdout', 'stderr'] as const)
      child[name].setEncoding('utf8').on('data', (chunk: string) => {
        texts[name] += chunk;
        show?.(chunk);
      });
    child.once('error', (cause: NodeJS.ErrnoException) => {
      const missing = 'There is no program terraform: install Terraform 1.11 or newer';
      reject(cause.code === 'ENOENT' ? new CliError(missing, {cause}) : cause);
    });
    child.once('close', code => {
      stop?.removeEventListener('abort', interrupt);
      resolve({code: code ?? 1, ...texts});
    });
  });
}
