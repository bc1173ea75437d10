/** `gleaner doctor`: compares the deployment with the project, and names the command that mends each difference. */
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {requireRunning} from '../../client/connection/connection.ts';
import {googleOf, openGoogle} from '../../client/google/api.ts';
import {CliError} from '../../client/text/errors.ts';
import type {Column} from '../../client/text/format.ts';
import {print, say, type TextLine, table} from '../../client/text/output.ts';
import {tickLocation} from '../../emulator/scheduler.ts';
import {poolRecords} from '../../shared/control-plane/documents/documents.ts';
import {poolOf} from '../../shared/domain/deployment.ts';
import {isForbidden} from '../../shared/google/errors.ts';
import {allRecords, latestRecord, openStateBucket, stateBucketOf} from '../deploy/records.ts';
import {deployedOf, readSettings} from '../deploy/settings.ts';
import {ZONE} from '../local/local-deployment.ts';
import type {Check, Context, Finding} from './context.ts';
import {DEPLOYMENT_CHECKS} from './deployment-checks.ts';
import {PROJECT_CHECKS} from './project-checks.ts';

export const CHECKS: readonly Check[] = [...PROJECT_CHECKS, ...DEPLOYMENT_CHECKS];

/** Prints the findings. Exit code 1 with an error. */
export async function doctor(options: CloudOptions & {state_bucket?: string}): Promise<void> {
  await withCloud(options, async cloud => {
    requireRunning(cloud.connection);
    const findings = await diagnose(await contextOf(cloud, options));
    print<'doctor'>(options.json, {findings}, linesOf(findings));
    if (findings.some(({severity}) => severity === 'error')) process.exitCode = 1;
  });
}

/** Runs every check. A check without an answer is an error of its own, and stops no other. */
export async function diagnose(context: Context): Promise<Finding[]> {
  return Promise.all(
    CHECKS.map(async ({name, is_local = false, check}): Promise<Finding> => {
      if (!context.is_google && !is_local)
        return {check: name, severity: 'skipped', evidence: 'not on a local cloud', cure: null};
      try {
        return {check: name, ...(await check(context))};
      } catch (error) {
        const {message, cause} = error as Error;
        // An error of the store or of the bucket has Google's as its cause.
        if (!(error instanceof CliError) && cause === undefined) throw error;
        const cure = isForbidden(cause ?? error)
          ? 'use the account that deployed, or grant yours roles/viewer and roles/iam.securityReviewer on the project'
          : 'repair the access, and run it again';
        return {check: name, severity: 'error', evidence: message, cure};
      }
    }),
  );
}

/** Reads what the deployment should be: its record, otherwise the settings of this folder; on a local cloud its pool. */
export async function contextOf(
  cloud: Cloud,
  options: {state_bucket?: string | undefined},
): Promise<Context> {
  const {connection, store, objects} = cloud;
  const {project, deployment: name, bucket, is_google, folder} = connection;
  const common = {store, objects, is_google, folder, project, bucket, now_ms: Date.now()};
  if (!is_google) {
    const pool = (await poolRecords.parseAll(await store.query('pools'), ({message}) => say(message))).find(
      each => each.pool === poolOf(name),
    );
    const settings = {project, name, zones: pool?.zones ?? [ZONE], accelerator: pool?.accelerator};
    const deployed = deployedOf({...settings, region: tickLocation});
    const noRecord = {applied: undefined, records: async () => []};
    return {...common, ...deployed, ...noRecord, settings, api: googleOf(connection)};
  }
  const api = openGoogle();
  const state = openStateBucket(api, project, stateBucketOf(project, options));
  const applied = await latestRecord(state, name);
  const {settings: file} = connection;
  const settings = applied?.settings ?? (file === undefined ? undefined : await readSettings(file));
  if (!settings)
    throw new CliError(
      `There is no record of a deployment ${name} in gs://${state.bucket}: run \`gleaner deploy\``,
    );
  const records = () => allRecords(state, name);
  return {...common, ...deployedOf(settings), settings, applied, records, api};
}

const MARKS = {ok: 'ok', warning: 'WARNING', error: 'ERROR', skipped: '-'};

const COLUMNS: Column<Finding>[] = [
  {title: 'Severity', cell: ({severity}) => MARKS[severity]},
  {title: 'Check', cell: ({check}) => check},
  {title: 'Evidence', cell: ({evidence}) => evidence},
];

function linesOf(findings: readonly Finding[]): TextLine[] {
  const cures = findings.filter(({cure}) => cure !== null);
  return [
    ...table(COLUMNS, findings),
    ...(cures.length > 0 ? ['', ...cures.map(({check, cure}) => `${check}: ${cure}`)] : []),
  ];
}
