/** Terraform in `terraform/`, with Google's real providers and the state in a bucket. */
import {spawn} from 'node:child_process';
import {randomBytes} from 'node:crypto';
import {fileURLToPath} from 'node:url';
import {CliError} from '../terminal/errors.ts';
import {adviceFor} from './advice.ts';

const FOLDER = fileURLToPath(new URL('../../terraform', import.meta.url));

/** Failure of a step of Terraform, with its whole output. */
export class StepFailed extends CliError {
  override name = 'StepFailed';
  readonly output: string;

  constructor(step: string, output: string) {
    const firstError = /Error: (.+)/.exec(output)?.[1] ?? output.trim().split('\n').at(-1) ?? '';
    const advice = adviceFor(output);
    super(`Failed to ${step}: ${firstError.trim()}${advice ? `; ${advice}` : ''}`);
    this.output = output;
  }
}

export class Terraform {
  readonly #env: NodeJS.ProcessEnv;
  readonly #stop: AbortSignal;

  /** `stop` interrupts the step at work, which then ends in order. */
  constructor(stop: AbortSignal) {
    this.#stop = stop;
    // A plan and its apply need the same key. Google keeps the key of the first apply.
    const key = randomBytes(32).toString('hex');
    this.#env = {...process.env, TF_VAR_ticket_key: key, TF_IN_AUTOMATION: '1', CHECKPOINT_DISABLE: '1'};
  }

  async init(bucket: string, prefix: string): Promise<void> {
    const backend = [`-backend-config=bucket=${bucket}`, `-backend-config=prefix=${prefix}`];
    await this.#run(
      'initialise Terraform',
      ['init', '-reconfigure', '-input=false', '-no-color', ...backend],
      'quiet',
    );
  }

  /** Prints the plan, and writes it to a file. */
  async plan(file: string, variableFiles: string[]): Promise<void> {
    const variables = variableFiles.map(path => `-var-file=${path}`);
    await this.#run('plan', ['plan', '-input=false', '-no-color', `-out=${file}`, ...variables], 'shown');
  }

  async show(file: string): Promise<unknown> {
    return JSON.parse(await this.#run('read the plan', ['show', '-json', file], 'quiet'));
  }

  async apply(file: string): Promise<void> {
    await this.#run('apply', ['apply', '-input=false', '-no-color', file], 'shown');
  }

  async outputs(): Promise<Record<string, unknown>> {
    const stated = JSON.parse(await this.#run('read the outputs', ['output', '-json'], 'quiet'));
    const entries = Object.entries(stated as Record<string, {value: unknown}>);
    return Object.fromEntries(entries.map(([name, {value}]) => [name, value]));
  }

  /** Runs a step, and returns its standard output. `shown`: a person sees the output while Terraform works. */
  #run(step: string, args: string[], output: 'shown' | 'quiet'): Promise<string> {
    return new Promise((resolve, reject) => {
      const child = spawn('terraform', [`-chdir=${FOLDER}`, ...args], {
        env: this.#env,
        stdio: ['ignore', 'pipe', 'pipe'],
        // A group of its own: Terraform ends in order after one interrupt, and at once after a second one.
        detached: true,
      });
      const interrupt = () => child.kill('SIGINT');
      this.#stop.addEventListener('abort', interrupt, {once: true});
      const texts = {stdout: '', stderr: ''};
      for (const name of ['stdout', 'stderr'] as const)
        child[name].setEncoding('utf8').on('data', (chunk: string) => {
          texts[name] += chunk;
          if (output === 'shown') process.stderr.write(chunk);
        });
      child.once('error', (error: NodeJS.ErrnoException) =>
        reject(
          error.code === 'ENOENT'
            ? new CliError('There is no program terraform: install Terraform 1.11 or newer', {cause: error})
            : error,
        ),
      );
      child.once('close', code => {
        this.#stop.removeEventListener('abort', interrupt);
        if (code === 0) resolve(texts.stdout);
        else reject(new StepFailed(step, texts.stderr + texts.stdout));
      });
    });
  }
}
