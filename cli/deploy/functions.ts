/** The functions at Google, compared with a release. */
import {readFileSync} from 'node:fs';
import {absentAsNull, type GoogleApi} from '../../client/google/api.ts';

const TRIGGERS = new URL('../../functions/triggers.json', import.meta.url);

type Triggers = {functions: {name: string}[]};

type Function = {
  state?: string;
  buildConfig?: {source?: {storageSource?: {object?: string}}};
  serviceConfig?: {environmentVariables?: {GLEANER_BUNDLE?: string}};
};

/** A function that is not as the release has it. `cure`: the command that mends it. */
type WrongFunction = {function: string; evidence: string; cure: string};

type Release = {functions: {sha256: string}; bundle: {sha256: string}};

/** The functions that are absent, not active, or of another release. */
export async function wrongFunctions(
  api: GoogleApi,
  {project, region, name}: {project: string; region: string; name: string},
  {functions, bundle}: Release,
): Promise<WrongFunction[]> {
  const triggers = JSON.parse(readFileSync(TRIGGERS, 'utf8')) as Triggers;
  const at = `cloudfunctions.googleapis.com/v2/projects/${project}/locations/${region}/functions`;
  const zip = `functions/${functions.sha256}.zip`;
  const checked = triggers.functions.map(async ({name: each}): Promise<WrongFunction[]> => {
    const id = `${name}-${each}`;
    const wrong = (evidence: string, cure = 'gleaner deploy') => [{function: each, evidence, cure}];
    const found = (await absentAsNull(api.call('GET', `${at}/${id}`))) as Function | null;
    if (!found) return wrong(`there is no function ${id}`);
    const {state, buildConfig, serviceConfig} = found;
    const describe = `gcloud functions describe ${id} --region=${region} --project=${project}`;
    if (state !== 'ACTIVE') return wrong(`${id} is ${state}`, describe);
    const object = buildConfig?.source?.storageSource?.object;
    if (object !== zip) return wrong(`${id} runs ${object}, and ${zip} is applied`);
    const worker = serviceConfig?.environmentVariables?.GLEANER_BUNDLE;
    if (worker === bundle.sha256) return [];
    return wrong(`${id} gives workers the bundle ${worker}, and ${bundle.sha256} is applied`);
  });
  return (await Promise.all(checked)).flat();
}
