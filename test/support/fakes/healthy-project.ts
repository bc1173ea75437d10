/** Answers of Google about a deployment without a fault, for `GoogleProject`. */
import {readFileSync} from 'node:fs';
import {ROOT} from '../machine/process.ts';
import {type GoogleProject, PROJECT} from './google-project.ts';

export const ZIP = 'a'.repeat(64);
export const BUNDLE = 'b'.repeat(64);
const NUMBER = '123';

export const at = {
  project: `/v1/projects/${PROJECT}`,
  functions: `/v2/projects/${PROJECT}/locations/us-central1/functions`,
  zone: `/v2/projects/${PROJECT}/locations/us-central1-a`,
  job: `/v1/projects/${PROJECT}/locations/us-central1/jobs/gleaner-tick`,
  quotas: `/v1/projects/${PROJECT}/locations/global/services/tpu.googleapis.com/quotaInfos`,
  bucket: `/storage/v1/b/${PROJECT}-gleaner`,
};

export const accountOf = (name: string) => `gleaner-${name}@${PROJECT}.iam.gserviceaccount.com`;
const agentOf = (service: string) =>
  `serviceAccount:service-${NUMBER}@gcp-sa-${service}.iam.gserviceaccount.com`;

/** Bindings of the project. */
export const BINDINGS = [
  {role: `projects/${PROJECT}/roles/gleaner_tpu`, members: [`serviceAccount:${accountOf('control')}`]},
  {
    role: 'roles/datastore.user',
    members: [`serviceAccount:${accountOf('control')}`, `serviceAccount:${accountOf('worker-api')}`],
  },
  {role: 'roles/eventarc.serviceAgent', members: [agentOf('eventarc')]},
  {role: 'roles/pubsub.serviceAgent', members: [agentOf('pubsub')]},
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

export function makeHealthy(google: GoogleProject): void {
  google.prepare();
  const get = (path: string, answer: object) => google.answers.set(`GET ${path}`, answer as never);
  const post = (path: string, answer: object) => google.answers.set(`POST ${path}`, answer as never);
  get(at.project, {projectId: PROJECT, projectNumber: NUMBER});
  for (const name of ['build', 'control', 'invoker', 'worker', 'worker-api'])
    get(`${at.project}/serviceAccounts/${accountOf(name)}`, {email: accountOf(name)});
  post(`${at.project}:getIamPolicy`, {bindings: BINDINGS});
  post(`${at.project}/serviceAccounts/${accountOf('worker')}:getIamPolicy`, {
    bindings: [{role: 'roles/iam.serviceAccountUser', members: [`serviceAccount:${accountOf('control')}`]}],
  });
  post(`${at.project}:testIamPermissions`, {permissions: ['cloudscheduler.jobs.get', 'tpu.nodes.list']});
  get(`${at.project}/topics/control`, {name: `projects/${PROJECT}/topics/control`});
  post(`${at.project}/topics/control:testIamPermissions`, {permissions: ['pubsub.topics.publish']});
  // An organization without a policy answers with the default of the constraint.
  post(`${at.project}:getEffectiveOrgPolicy`, {listPolicy: {allValues: 'ALLOW'}});
  get(
    `${at.quotas}/TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI`,
    quotaOf('16', 'us-central1-a'),
  );
  get(
    `${at.quotas}/TPUV5sPreemptibleLitepodServingPerProjectPerRegionForTPUAPI`,
    quotaOf('-1', 'us-central1'),
  );
  get(`${at.zone}/acceleratorTypes/v5litepod-4`, {type: 'v5litepod-4'});
  get(`${at.zone}/runtimeVersions/v2-alpha-tpuv5-lite`, {version: 'v2-alpha-tpuv5-lite'});
  get(at.job, {state: 'ENABLED', status: {}});
  google.makeBucket(`${PROJECT}-gleaner`);
  for (const {name} of functions) get(`${at.functions}/gleaner-${name}`, functionOf({}));
}
