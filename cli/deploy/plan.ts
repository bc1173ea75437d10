/** A plan of Terraform, by real providers or with mocked answers of Google. */

import {readFile} from 'node:fs/promises';
import {join} from 'node:path';
import {DIST, VARIABLES_FILE} from '../build/artifacts.ts';
import {CliError} from '../errors.ts';
import {applyMocked, type Resource, TerraformRefused, type Variables} from '../terraform/mocked-apply.ts';
import type {Settings} from './settings.ts';
import {StepFailed} from './terraform.ts';

type PlannedState = {planned_values?: {root_module?: {resources?: (Resource & {mode: string})[]}}};

/** Resources of `terraform show -json` of a plan, as they are after its apply. */
export function resourcesOf(plan: unknown): Resource[] {
  const resources = (plan as PlannedState).planned_values?.root_module?.resources ?? [];
  return resources.filter(({mode}) => mode === 'managed');
}

/** Why a real plan cannot be made on this machine, however right the settings are; undefined if it can. */
export function whyMocked(error: unknown): string | undefined {
  if (!(error instanceof StepFailed)) return undefined;
  if (/could not find default credentials/i.test(error.output))
    return 'this machine has no credentials of Google';
  if (/could not connect to registry|Failed to query available provider packages/i.test(error.output))
    return 'Terraform cannot download its providers here';
  return undefined;
}

/** Resources of a first deployment with these settings, without an account. */
export async function mockedResources(settings: Settings): Promise<Resource[]> {
  const {artifacts} = JSON.parse(await readFile(join(DIST, VARIABLES_FILE), 'utf8'));
  try {
    return (await applyMocked({...settings, ticket_key: '0'.repeat(64), artifacts} as Variables)).resources;
  } catch (error) {
    throw error instanceof TerraformRefused ? new CliError(error.message, {cause: error}) : error;
  }
}
