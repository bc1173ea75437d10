/** Settings of a deployment: a `.tfvars.json` file, which plain Terraform reads as well. */

import {readFileSync} from 'node:fs';
import {readFile} from 'node:fs/promises';
import {fileURLToPath} from 'node:url';
import {z} from 'zod';
import {CliError} from '../../client/text/errors.ts';
import {parseJson} from '../../shared/contracts/messages/schemas.ts';
import {DEFAULT_DEPLOYMENT, isDeployment} from '../../shared/domain/deployment.ts';
import {acceleratorProblem, runtimeOf, runtimeProblem} from '../../shared/domain/fleet/accelerators.ts';
import {type Provider, provider as providers} from '../../shared/domain/records/providers.ts';

export const EXAMPLE = fileURLToPath(new URL('../../terraform/example.tfvars.json', import.meta.url));

const VARIABLES = fileURLToPath(new URL('../../terraform/variables.tf', import.meta.url));
const DEFAULT_ACCELERATOR = 'v5litepod-1';
/** Variables that the command sets by itself. */
const OWN = ['artifacts', 'ticket_key'];

/** Terraform checks every value, but late. It only warns of an unknown name, and asks for a missing value. */
const settings = z.looseObject({
  project: z.string('the id of a Google Cloud project'),
  name: z.string().refine(isDeployment, '4 to 15 lower-case letters, digits and dashes').optional(),
});

export type Settings = z.infer<typeof settings>;

/** Reads a file of settings. Throws `CliError` or `Rejected`; both name the file, the setting and what to do. */
export async function readSettings(file: string): Promise<Settings> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    const advice =
      error.code === 'ENOENT'
        ? 'copy terraform/example.tfvars.json to it, and set your project in it; or name the project with --cloud, for the settings of its last deployment'
        : '';
    throw new CliError(`Failed to read the settings in ${file}: ${advice || error.message}`, {cause: error});
  });
  const given = parseJson(settings, text, file);
  const problems = [...problemsOf(given, readVariables()), ...typeProblems(given)];
  if (problems.length > 0) throw new CliError(`${file} is not valid: ${problems.join('; ')}`);
  return given;
}

/** Terraform has no table of accelerators. */
function typeProblems({accelerator, runtime_version, tpu_provider, max_hosts}: Settings): string[] {
  const type = String(accelerator ?? DEFAULT_ACCELERATOR);
  const provider = providers.catch('tpu-api').parse(tpu_provider);
  const problem =
    acceleratorProblem(type, provider, Number(max_hosts ?? 1)) ??
    runtimeProblem(type, String(runtime_version ?? runtimeOf(type, provider)), provider);
  return problem ? [problem] : [];
}

/** `rules`: those that ask for the form of a text, or of each text of a list. */
type Variable = {name: string; is_required: boolean; type: string; rules: {form: RegExp; error: string}[]};

const RULE = /can\(regex\("([^"\\]+)", [\w.]+\)\).*\n +error_message = "([^"]+)"/g;

/** Variables of `terraform/` that a person sets. */
function readVariables(): Variable[] {
  const blocks = readFileSync(VARIABLES, 'utf8')
    .split(/^variable /m)
    .slice(1);
  const variables = blocks.map(block => ({
    name: /^"(\w+)"/.exec(block)?.[1] ?? '',
    is_required: !/^ {2}default /m.test(block),
    type: /^ {2}type += (string|number|bool|list)\b/m.exec(block)?.[1] ?? '',
    rules: [...block.matchAll(RULE)].map(([, form = '', error = '']) => ({form: new RegExp(form), error})),
  }));
  return variables.filter(({name}) => !OWN.includes(name));
}

function problemsOf(given: Settings, variables: Variable[]): string[] {
  const names = variables.map(({name}) => name);
  const unknown = Object.keys(given).filter(key => !names.includes(key));
  const missing = variables.filter(({name, is_required}) => is_required && given[name] === undefined);
  return [
    ...unknown.map(key => `${JSON.stringify(key)} is not a setting; the settings are ${names.join(', ')}`),
    ...missing.map(({name}) => `${name} is missing`),
    ...variables.flatMap(variable => wrongIn(variable, given[variable.name])),
  ];
}

function wrongIn({name, type, rules}: Variable, value: unknown): string[] {
  if (value === undefined || value === null) return [];
  const is = Array.isArray(value) ? 'list' : ({boolean: 'bool'}[typeof value as string] ?? typeof value);
  if (type && is !== type) return [`${name} must be a ${type}, and is ${JSON.stringify(value)}`];
  const texts = [value].flat().filter(each => typeof each === 'string');
  return rules.flatMap(({form, error}) => (texts.every(text => form.test(text)) ? [] : [error]));
}

export type Deployed = {
  name: string;
  region: string;
  scheduler_region: string;
  /** Zones of the pools, and those that a message may name. */
  zones: string[];
  accelerator: string;
  runtime_version: string;
  provider: Provider;
  spot: boolean;
  workers_per_zone: number;
};

/** Values of the settings, with the defaults of `terraform/variables.tf`. */
export function deployedOf(settings: Settings): Deployed {
  const {name = DEFAULT_DEPLOYMENT, zones, allowed_zones, accelerator, runtime_version} = settings;
  const type = String(accelerator ?? DEFAULT_ACCELERATOR);
  const provider = providers.catch('tpu-api').parse(settings.tpu_provider);
  return {
    name,
    region: String(settings.region),
    scheduler_region: String(settings.scheduler_region ?? settings.region),
    zones: (allowed_zones ?? zones ?? []) as string[],
    accelerator: type,
    runtime_version: String(runtime_version ?? runtimeOf(type, provider)),
    provider,
    spot: settings.spot !== false,
    workers_per_zone: Number(settings.workers_per_zone ?? 1),
  };
}
