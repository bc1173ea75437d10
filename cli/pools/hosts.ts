/** `gleaner versions` and `discover`. */
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {aliveIn, type Fleet, readFleet, requirePool} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Connection} from '../../client/connection/connection.ts';
import {CliError} from '../../client/text/errors.ts';
import type {Column} from '../../client/text/format.ts';
import {print, quoted, table} from '../../client/text/output.ts';
import {type HostCode, type HostView, viewCode, viewHosts} from '../../client/views/hosts.ts';
import {ranText} from '../../client/views/job-view.ts';
import {parseWorkerName} from '../../shared/domain/names.ts';
import type {Source} from '../../shared/domain/records/source.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {FIRST_HOST} from '../../shared/domain/worker/hosts.ts';
import {clientOptionsFor} from '../../shared/google/endpoint.ts';
import type {Document} from '../../shared/ports/ports.ts';

type VersionsOptions = CloudOptions & {available?: string | boolean};

/** Prints which code pools and their running workers have, or the runtime versions of zones. */
export async function versions(
  only: string | undefined,
  options: VersionsOptions,
  gleaner: string,
): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    if (only !== undefined) requirePool(fleet, only);
    if (options.available) return printAvailable(cloud, fleet, options);
    const rows = fleet.names
      .filter(name => only === undefined || name === only)
      .map(name => {
        const found = fleet.pools.find(({pool}) => pool === name);
        return {
          pool: name,
          accelerator: found?.accelerator ?? null,
          runtime_version: found?.runtime_version ?? null,
          source: found?.source ?? null,
          source_version: found?.source_version ?? 0,
          jax_version: found?.environment.jax_version ?? null,
          workers: aliveIn(fleet, name).map(worker => {
            const {name, bundle, source_report} = worker;
            return {worker: name, bundle, source_report, hosts: viewCode(worker)};
          }),
        };
      });
    const lines = rows.flatMap(row => [
      `${row.pool}  ${row.accelerator ?? 'accelerator of the deployment'}  ${row.runtime_version ?? ''}  ${sourceText(row.source)}`.trimEnd(),
      ...row.workers.flatMap(workerLines),
    ]);
    print<'versions'>(options.json, {gleaner, pools: rows}, [`gleaner ${gleaner}`, ...lines]);
  });
}

/** Prints the runtime versions of a zone, or of the zones of every pool. */
async function printAvailable({connection}: Cloud, fleet: Fleet, options: VersionsOptions): Promise<void> {
  const zones = zonesOf(fleet, options.available);
  if (options.dry_run) {
    const commands = zones.map(
      zone =>
        `gcloud compute tpus tpu-vm versions list --zone=${quoted(zone)} --project=${quoted(connection.project)}`,
    );
    return print<'versions'>(options.json, {commands}, commands);
  }
  const available = await availableIn(zones, connection);
  const lines = available.flatMap(({zone, versions}) => [zone, ...versions.map(version => `  ${version}`)]);
  print<'versions'>(options.json, {available}, lines);
}

const CALL = {timeout: 20_000};

/** Runtime versions that Cloud TPU offers in each zone. */
async function availableIn(
  zones: readonly string[],
  {project, storage_endpoint: endpoint, token}: Pick<Connection, 'project' | 'storage_endpoint' | 'token'>,
): Promise<{zone: string; versions: string[]}[]> {
  const {v2} = (await import('@google-cloud/tpu')).default;
  // A local cloud serves every API at one address.
  const client = new v2.TpuClient({projectId: project, ...clientOptionsFor(endpoint, token)});
  try {
    return await Promise.all(
      zones.map(async zone => {
        const parent = `projects/${project}/locations/${zone}`;
        const [found] = await client.listRuntimeVersions({parent}, CALL);
        return {zone, versions: found.flatMap(({version}) => version ?? []).sort()};
      }),
    );
  } catch (error) {
    throw new CliError(`Failed to list the runtime versions: ${(error as Error).message}`, {cause: error});
  } finally {
    await client.close();
  }
}

function zonesOf({pools, workers}: Fleet, given: VersionsOptions['available']): string[] {
  if (typeof given === 'string') return [given];
  const known = [...pools.flatMap(({zones}) => zones), ...workers.map(({zone}) => zone)];
  if (known.length === 0)
    throw new CliError('No pool has a zone yet: name a zone, such as --available us-central1-a');
  return [...new Set(known)].sort();
}

export function sourceText(source: Source | null): string {
  if (source === null) return 'no code of its own';
  if ('bundle' in source) return `bundle ${source.bundle.slice(0, 12)}`;
  const {repo} = source;
  if ('branch' in source) return `${repo} branch ${source.branch}`;
  return 'pr' in source
    ? `${repo} pull request ${source.pr}`
    : `${repo} commit ${source.commit.slice(0, 12)}`;
}

function workerLines({
  worker,
  bundle,
  source_report,
  hosts,
}: Pick<Worker, 'bundle' | 'source_report'> & {worker: string; hosts: HostCode[]}): string[] {
  const code = source_report
    ? `${source_report.status}${source_report.error ? `: ${source_report.error}` : ''} ${ranText(source_report.ran as Document | null)}`
    : 'no report of its code';
  const failed = hosts.filter(({host, error}) => host !== FIRST_HOST && error !== null);
  return [
    `  ${worker}  worker bundle ${bundle?.slice(0, 12) ?? 'unknown'}  ${code}`.trimEnd(),
    ...failed.map(({host, error}) => `    host ${host}  failed: ${error}`),
  ];
}

const COLUMNS: Column<HostView & {worker: string}>[] = [
  {title: 'Host', cell: ({worker, host}) => `${worker}/${host}`},
  {title: 'Name', cell: ({isKnown, hostname}) => (isKnown ? hostname || '-' : 'no hello yet')},
  {title: 'Address', cell: ({address}) => address || '-'},
  {title: 'Phase', cell: ({phase}) => phase},
];

/** Prints the hosts of the running workers. A host is known once it has said hello. */
export async function discover(target: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const workers = aliveIn(await readFleet(cloud), target);
    const all = workers.flatMap(worker => {
      const {name, pool} = worker;
      return viewHosts(worker).map(host => ({worker: name, pool, ...host}));
    });
    const pool = target === 'all' ? 'POOL' : (parseWorkerName(target)?.pool ?? target);
    const none = `no TPU is running: TPUs are created when there is work, or by \`gleaner pool keep ${pool} --minutes 10\``;
    const known = all.filter(({isKnown}) => isKnown).map(({isKnown: _, ...host}) => host);
    print<'discover'>(options.json, known, workers.length > 0 ? table(COLUMNS, all) : [none]);
  });
}
