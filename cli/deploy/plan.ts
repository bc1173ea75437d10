/** A plan of Terraform, by real providers or with mocked answers of Google. */
import type {Json} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import type {Id} from '../../shared/google/known-errors.ts';
import {builtArtifacts} from '../build/artifacts.ts';
import {applyMocked, type Resource, type Variables} from '../terraform/mocked-apply.ts';
import type {Ceilings} from './cost.ts';
import type {Settings} from './settings.ts';
import {StepFailed} from './terraform.ts';

/** A change that an apply makes to a resource. `values`: those after it, as far as they are known. */
export type Change = {address: string; type: string; actions: string[]; values: Json};

/** Resources after an apply of a plan, what the apply changes, and the ceilings of their cost. */
export type Plan = {resources: Resource[]; changes: Change[]; ceilings: Ceilings};

type PlannedState = {
  resource_changes?: {
    address: string;
    type: string;
    mode: string;
    change: {actions: string[]; after?: Json | null};
  }[];
  planned_values?: {
    outputs?: {ceilings?: {value: Ceilings}};
    root_module?: {resources?: (Resource & {mode: string})[]};
  };
};

/** Resources and ceilings of `terraform show -json` of a plan, as they are after its apply. */
export function readPlan(shown: unknown): Plan {
  const {planned_values, resource_changes = []} = shown as PlannedState;
  const {outputs, root_module} = planned_values ?? {};
  const ceilings = outputs?.ceilings?.value;
  if (!ceilings) throw new CliError('The plan has no output `ceilings`: use the terraform/ of this release');
  const resources = (root_module?.resources ?? []).filter(({mode}) => mode === 'managed');
  const changes = resource_changes
    .filter(({mode, change}) => mode === 'managed' && change.actions.some(action => action !== 'no-op'))
    .map(({address, type, change: {actions, after}}) => ({address, type, actions, values: after ?? {}}));
  return {resources, changes, ceilings};
}

/** Why a real plan cannot be made on this machine, however right the settings are; undefined if it can. */
export function whyMocked(error: unknown): string | undefined {
  return error instanceof StepFailed && error.id ? WHY_MOCKED[error.id] : undefined;
}

const WHY_MOCKED: Partial<Record<Id, string>> = {
  'no-credentials': 'this machine has no credentials of Google',
  'no-bucket': 'the bucket of the state does not exist yet, which a deployment makes',
  'no-provider': 'Terraform cannot download its providers here',
};

/** A first deployment with these settings, without an account. */
export async function mockedPlan(settings: Settings): Promise<Plan> {
  const artifacts = await builtArtifacts();
  const variables = {...settings, ticket_key: '0'.repeat(64), artifacts} as Variables;
  const {resources, outputs} = await applyMocked(variables);
  const changes = resources.map(({address, type}) => ({address, type, actions: ['create'], values: {}}));
  return {resources, changes, ceilings: outputs.ceilings as Ceilings};
}
