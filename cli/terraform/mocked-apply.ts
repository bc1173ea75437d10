/** The resources that `terraform/` makes, without an account: Terraform applies the configuration with mocked answers of Google. */
import {mkdir, rm, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {CliError} from '../../client/text/errors.ts';
import {openWorkspace, type Providers} from './workspace.ts';

/** Values of variables, as in a `.tfvars.json` file. */
export type Variables = {project: string; name?: string; [variable: string]: unknown};

export type Resource = {
  /** Such as `google_pubsub_topic.topic["tick"]`. */
  address: string;
  type: string;
  name: string;
  /** Key of `for_each` or `count`. */
  index?: string | number;
  values: Record<string, unknown>;
};

type MockedApply = {
  /** In order of their addresses. Values that Google computes are invented, except the addresses of accounts. */
  resources: Resource[];
  outputs: Record<string, unknown>;
  providers: Providers;
};

export class TerraformRefused extends CliError {}

const ACCOUNTS = ['control', 'worker-api', 'worker', 'invoker', 'build'];
const PROJECT_NUMBER = '123456789012';

/**
 * Applies the configuration with mocked resources, as a deployment with these variables would. Reads and changes nothing at Google.
 * Throws `TerraformRefused` with the messages of Terraform, such as those of a wrong variable.
 */
export async function applyMocked(variables: Variables): Promise<MockedApply> {
  const workspace = await openWorkspace();
  try {
    await rm(join(workspace.folder, 'tests'), {recursive: true, force: true});
    await mkdir(join(workspace.folder, 'tests'));
    await writeFile(join(workspace.folder, 'tests/apply.tftest.hcl'), testOf(variables));
    const {code, lines} = await workspace.terraform('test', '-json', '-verbose');
    const messages = lines.filter(line => line.startsWith('{')).map(line => JSON.parse(line) as Message);
    const state = messages.find(({test_state}) => test_state)?.test_state;
    if (code !== 0 || !state) throw new TerraformRefused(refusalOf(messages, lines));
    return {...readState(state), providers: workspace.providers};
  } finally {
    await workspace.close();
  }
}

type StateResource = Omit<Resource, 'index'> & {mode: string; index?: string | number};
type State = {
  outputs?: Record<string, {value: unknown}>;
  root_module?: {resources?: StateResource[]};
};
type Message = {
  test_state?: State;
  diagnostic?: {severity: string; summary: string; detail: string};
};

function readState({outputs: stated = {}, root_module}: State): Pick<MockedApply, 'resources' | 'outputs'> {
  const made = (root_module?.resources ?? []).filter(({mode}) => mode === 'managed');
  const resources = made.map(({address, type, name, index, values}) => {
    return {address, type, name, ...(index === undefined ? {} : {index}), values};
  });
  const outputs = Object.entries(stated).map(([name, {value}]) => [name, value]);
  return {
    resources: resources.sort((a, b) => (a.address < b.address ? -1 : 1)),
    outputs: Object.fromEntries(outputs),
  };
}

function refusalOf(messages: Message[], lines: string[]): string {
  const errors = messages.flatMap(({diagnostic}) => (diagnostic?.severity === 'error' ? [diagnostic] : []));
  const texts = errors.map(({summary, detail}) => {
    const [reason = ''] = detail.split('This was checked by the validation rule');
    return `${summary}: ${reason.replaceAll(/\s+/g, ' ').trim()}`;
  });
  return texts.length > 0 ? texts.join('\n') : lines.join('\n');
}

/** A test with one apply. JSON is HCL, except that `${` and `%{` in a string begin a template. */
function testOf(variables: Variables): string {
  const {project, name = 'gleaner'} = variables;
  const literal = (value: unknown) =>
    JSON.stringify(value).replaceAll(/([$%])\{/g, (_, sign: string) => `${sign}${sign}{`);
  const settings = Object.entries(variables).map(([key, value]) => `  ${key} = ${literal(value)}`);
  const accounts = ACCOUNTS.map(account => {
    const email = `${name}-${account}@${project}.iam.gserviceaccount.com`;
    const values = {
      email,
      member: `serviceAccount:${email}`,
      name: `projects/${project}/serviceAccounts/${email}`,
    };
    return `  override_resource {
    target = google_service_account.account["${account}"]
    values = ${literal(values)}
  }`;
  });
  const storage = `service-${PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com`;
  return `mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "${PROJECT_NUMBER}" }
  }
  mock_data "google_storage_project_service_account" {
    defaults = { email_address = "${storage}" }
  }
${accounts.join('\n')}
}

variables {
${settings.join('\n')}
}

run "apply" {
  command = apply
}
`;
}
