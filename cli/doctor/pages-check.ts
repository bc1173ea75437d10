/** Check of the pages behind Identity-Aware Proxy: the service, its code, and the way of a member to it. */
import type {GoogleApi, Json} from '../google/api.ts';
import {
  absentAsNull,
  broken,
  type Check,
  type Context,
  type Found,
  grantsIn,
  ok,
  warning,
} from './context.ts';

const IAP = 'iap.googleapis.com/v1/projects';

type Service = {
  iapEnabled?: boolean;
  uri?: string;
  terminalCondition?: {state?: string; message?: string};
  template?: {containers?: {env?: {name: string; value?: string}[]}[]};
};

/** Members of the pages in the settings of a deployment. */
export function membersOf({dashboard_members = []}: Context['settings']): string[] {
  return dashboard_members as string[];
}

export const pages: Check = {
  name: 'pages',
  async check(context) {
    const {api, project, region, name, settings} = context;
    const members = membersOf(settings);
    if (members.length === 0) return ok('not deployed: `dashboard_members` is empty');
    const id = `${name}-dashboard`;
    const at = `run.googleapis.com/v2/projects/${project}/locations/${region}/services/${id}`;
    const service = (await absentAsNull(api.call('GET', at))) as Service | null;
    if (!service) return broken(`there is no service ${id}`, 'gleaner deploy');
    if (service.iapEnabled !== true) return broken(`IAP does not stand before ${id}`, 'gleaner deploy');
    return (
      serving(service, context) ??
      (await admission(context, at, members)) ??
      (await signIn(api, project)) ??
      ok(`${service.uri} serves ${members.join(', ')}`)
    );
  },
};

function serving({terminalCondition, template}: Service, {name, region, project, applied}: Context) {
  const id = `${name}-dashboard`;
  if (terminalCondition?.state !== 'CONDITION_SUCCEEDED')
    return broken(
      `${id} does not serve: ${terminalCondition?.message ?? 'its state is unknown'}`,
      `gcloud run services logs read ${id} --region=${region} --project=${project}`,
    );
  const env = template?.containers?.[0]?.env ?? [];
  const code = env.find(each => each.name === 'GLEANER_FUNCTIONS')?.value;
  if (applied && code !== applied.artifacts.functions.sha256)
    return broken(
      `${id} runs ${code}, and ${applied.artifacts.functions.sha256} is applied`,
      'gleaner deploy',
    );
  return undefined;
}

/** The grants that a request needs: its reader passes IAP, and IAP calls the service. */
async function admission({api, project, region, name}: Context, service: string, members: string[]) {
  const [{projectNumber}, ofService, ofIap] = await Promise.all([
    api.call('GET', `cloudresourcemanager.googleapis.com/v1/projects/${project}`),
    api.call('GET', `${service}:getIamPolicy`),
    api.call('POST', `${IAP}/${project}/iap_web/cloud_run-${region}/services/${name}-dashboard:getIamPolicy`),
  ]);
  const agent = `serviceAccount:service-${projectNumber}@gcp-sa-iap.iam.gserviceaccount.com`;
  if (!grantsIn(ofService).has(`roles/run.invoker ${agent}`))
    return broken(`IAP may not call ${name}-dashboard: ${agent} lacks roles/run.invoker`, 'gleaner deploy');
  const passing = grantsIn(ofIap);
  const missing = members.filter(member => !passing.has(`roles/iap.httpsResourceAccessor ${member}`));
  return missing.length > 0 ? broken(`IAP lets ${missing.join(', ')} not pass`, 'gleaner deploy') : undefined;
}

/** IAP signs the people of an organization in by itself, and needs an OAuth client for all others. */
async function signIn(api: GoogleApi, project: string): Promise<Found | undefined> {
  const {parent} = await api.call('GET', `cloudresourcemanager.googleapis.com/v1/projects/${project}`);
  if (parent) return undefined;
  const {accessSettings} = await api.call('GET', `${IAP}/${project}/iap_web:iapSettings`);
  const {clientId} = ((accessSettings as Json | undefined)?.oauthSettings ?? {}) as {clientId?: string};
  if (clientId) return undefined;
  return warning(
    `${project} is in no organization, and IAP has no OAuth client: no member can sign in`,
    `make a client as docs/deploy.md#pages-for-a-team shows, and run gcloud iap settings set iap.yaml --project=${project} --resource-type=iap_web`,
  );
}
