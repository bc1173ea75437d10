/** Terraform in `terraform/`, with Google's real providers and the state in a bucket. */

import {randomBytes} from 'node:crypto';
import {fileURLToPath} from 'node:url';
import {CliError} from '../../client/text/errors.ts';
import {printableLines} from '../../shared/contracts/printable.ts';
import {type Id, type Kind, type Known, knownError} from '../../shared/google/known-errors.ts';
import {runTerraform} from '../terraform/run-terraform.ts';

const FOLDER = fileURLToPath(new URL('../../terraform', import.meta.url));

/** Hashes of the provider, which `init` writes and checks. */
export const LOCK_FILE = `${FOLDER}/.terraform.lock.hcl`;
export const VERSIONS_FILE = `${FOLDER}/versions.tf`;

/** Failure of a step of Terraform. `kind` and `id`: those of the first error that a repeat does not mend, or of the first. */
export class StepFailed extends CliError {
  readonly kind: Kind;
  readonly id: Id | undefined;
  readonly first: string;

  constructor(step: string, output: string) {
    const [before = '', ...errors] = output.split(/^[│\s]*Error: /m);
    const texts = errors.length > 0 ? errors : [before];
    const all = texts.map(text => ({text, ...(knownError(text) ?? UNKNOWN)}));
    const found = all.find(({kind}) => kind !== 'early') ?? all[0] ?? {text: '', ...UNKNOWN};
    // A person can look for what is shown whole.
    const first = (found.kind === 'unknown' ? found.text : (found.text.split(/\n[│\s]*\n/, 1)[0] ?? ''))
      .replace(/[│╷╵\s]+/g, ' ')
      .trim();
    super(`Failed to ${step}: ${first}${found.mend ? `; ${found.mend}` : ''}`);
    this.kind = found.kind;
    this.id = found.id;
    this.first = first;
  }
}

const UNKNOWN: Known = {kind: 'unknown', mend: 'this error is not known here', id: undefined};

const variablesOf = (files: readonly string[]) => files.map(path => `-var-file=${path}`);

export class Terraform {
  readonly #options: {folder: string; env: Record<string, string>; stop: AbortSignal};

  /** `stop` interrupts the step at work, which then ends in order. */
  constructor(stop: AbortSignal) {
    // A plan and its apply need the same key. Google keeps the key of the first apply.
    const env = {TF_VAR_ticket_key: randomBytes(32).toString('hex')};
    this.#options = {folder: FOLDER, env, stop};
  }

  async init(bucket: string, prefix: string): Promise<void> {
    const backend = [`-backend-config=bucket=${bucket}`, `-backend-config=prefix=${prefix}`];
    await this.#run('initialise Terraform', ['init', '-reconfigure', '-input=false', ...backend], 'quiet');
  }

  /** Writes the plan to a file, and returns its text. `replace`: resources to make anew. */
  async plan(file: string, variableFiles: string[], replace: readonly string[] = []): Promise<string> {
    const options = [...variablesOf(variableFiles), ...replace.map(address => `-replace=${address}`)];
    return this.#run('plan', ['plan', '-input=false', `-out=${file}`, ...options], 'quiet');
  }

  /** Takes a resource that exists into the state. */
  async import(variableFiles: string[], {address, id}: {address: string; id: string}): Promise<void> {
    const options = ['-input=false', ...variablesOf(variableFiles)];
    await this.#run(`take over ${id}`, ['import', ...options, address, id], 'quiet');
  }

  /** Leaves the resources of a type at Google, and takes them out of the state. */
  async forget(type: string): Promise<void> {
    const listed = await this.#run('list the state', ['state', 'list'], 'quiet');
    const addresses = listed.split('\n').filter(address => address.startsWith(`${type}.`));
    if (addresses.length > 0)
      await this.#run(`keep ${addresses.join(', ')}`, ['state', 'rm', ...addresses], 'quiet');
  }

  async show(file: string): Promise<unknown> {
    return JSON.parse(await this.#run('read the plan', ['show', '-json', file], 'quiet'));
  }

  async apply(file: string): Promise<void> {
    await this.#run('apply', ['apply', '-input=false', file], 'shown');
  }

  /** Prints the plan of a destroy, asks nothing, and destroys. */
  async destroy(variableFiles: string[]): Promise<void> {
    const options = ['-auto-approve', '-input=false', ...variablesOf(variableFiles)];
    await this.#run('destroy', ['destroy', ...options], 'shown');
  }

  async outputs(): Promise<Record<string, unknown>> {
    const stated = JSON.parse(await this.#run('read the outputs', ['output', '-json'], 'quiet'));
    const entries = Object.entries(stated as Record<string, {value: unknown}>);
    return Object.fromEntries(entries.map(([name, {value}]) => [name, value]));
  }

  /** Runs a step, and returns its standard output. `shown`: a person sees the output while Terraform works. */
  async #run(step: string, args: string[], output: 'shown' | 'quiet'): Promise<string> {
    const show =
      output === 'shown' ? (chunk: string) => process.stderr.write(printableLines(chunk)) : () => {};
    const {code, stdout, stderr} = await runTerraform(args, {...this.#options, show});
    if (code !== 0) throw new StepFailed(step, stderr || stdout);
    return stdout;
  }
}
