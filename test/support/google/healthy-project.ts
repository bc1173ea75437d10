/** Resources of a deployment without a fault, for `GoogleProject`. */
import {readFileSync} from 'node:fs';
import type {JsonObject} from '../../../emulator/http/json.ts';
import {ROOT} from '../machine/process.ts';
import {type GoogleProject, NUMBER, PROJECT} from './google-project.ts';

export const ZIP = 'a'.repeat(64);
export const BUNDLE = 'b'.repeat(64);

export const at = {
  project: `/v1/projects/${PROJECT}`,
  functions: `/v2/projects/${PROJECT}/locations/us-central1/functions`,
  zone: `/v2/projects/${PROJECT}/locations/us-central1-a`,
  job: `/v1/projects/${PROJECT}/locations/us-central1/jobs/gleaner-tick`,
  quotas: `/v1/projects/${PROJECT}/locations/global/services/tpu.googleapis.com/quotaInfos`,
  bucket: `/storage/v1/b/${PROJECT}-gleaner`,
};

export const accountOf = (name: string) => `gleaner-${name}@${PROJECT}.iam.gserviceaccount.com`;
const agentOf = (domain: string) => `serviceAccount:service-${NUMBER}@${domain}.iam.gserviceaccount.com`;

/** Bindings of the project. */
export const BINDINGS = [
  {role: `projects/${PROJECT}/roles/gleaner_tpu`, members: [`serviceAccount:${accountOf('control')}`]},
  {
    role: 'roles/datastore.user',
    members: [`serviceAccount:${accountOf('control')}`, `serviceAccount:${accountOf('worker-api')}`],
  },
  {role: 'roles/eventarc.serviceAgent', members: [agentOf('gcp-sa-eventarc')]},
  {role: 'roles/pubsub.serviceAgent', members: [agentOf('gcp-sa-pubsub')]},
  {role: 'roles/tpu.serviceAgent', members: [agentOf('cloud-tpu')]},
  {role: 'roles/cloudtpu.serviceAgent', members: [agentOf('gcp-sa-tpu')]},
];

const {functions} = JSON.parse(readFileSync(`${ROOT}functions/triggers.json`, 'utf8')) as {
  functions: {name: string}[];
};

export const functionOf = ({zip = ZIP, bundle = BUNDLE, state = 'ACTIVE'}) => ({
  state,
  buildConfig: {source: {storageSource: {object: `functions/${zip}.zip`}}},
  serviceConfig: {environmentVariables: {GLEANER_BUNDLE: bundle}},
});

export const quotaOf = (value: string, place: string) => ({
  dimensionsInfos: [{applicableLocations: [place], details: {value}}],
});

/** Names of the resources; `answers` has them below `/v1/` or `/v2/`. */
export const ACCOUNT = (name: string) => `projects/${PROJECT}/serviceAccounts/${accountOf(name)}`;

export function makeHealthy(google: GoogleProject): void {
  google.prepare();
  const have = (path: string, resource: JsonObject) =>
    google.resources.set(path.replace(/^\/v\d\//, ''), resource);
  have(at.project, {projectId: PROJECT, projectNumber: NUMBER});
  for (const name of ['build', 'control', 'invoker', 'worker', 'worker-api'])
    have(ACCOUNT(name), {email: accountOf(name)});
  google.policies.set(`projects/${PROJECT}`, BINDINGS);
  google.policies.set(ACCOUNT('worker'), [
    {role: 'roles/iam.serviceAccountUser', members: [`serviceAccount:${accountOf('control')}`]},
  ]);
  have(`${at.project}/topics/control`, {name: `projects/${PROJECT}/topics/control`});
  const quotas = 'TPUV5sPreemptibleLitepodServingPerProjectPer';
  have(`${at.quotas}/${quotas}ZoneForTPUAPI`, quotaOf('16', 'us-central1-a'));
  have(`${at.quotas}/${quotas}RegionForTPUAPI`, quotaOf('-1', 'us-central1'));
  have(`${at.zone}/acceleratorTypes/v5litepod-4`, {type: 'v5litepod-4'});
  have(`${at.zone}/runtimeVersions/v2-alpha-tpuv5-lite`, {version: 'v2-alpha-tpuv5-lite'});
  have(at.job, {state: 'ENABLED', status: {}});
  google.makeBucket(`${PROJECT}-gleaner`);
  for (const {name} of functions) have(`${at.functions}/gleaner-${name}`, functionOf({}));
}
