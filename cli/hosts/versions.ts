import type {Source} from '../../shared/domain/fleet/source.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import type {Document} from '../../shared/ports.ts';
import type {Where} from '../connect.ts';
import {withCloud} from '../control.ts';
import {ranText} from '../jobs/job-view.ts';
import {print, quoted} from '../output.ts';
import {aliveIn, readFleet, requirePool} from './targets.ts';

type Options = Where & {available?: string | boolean; json?: boolean};

/** Prints which code pools and their running workers have, or the command that lists the runtime versions of a zone. */
export async function versions(only: string | undefined, options: Options, gleaner: string): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    if (only !== undefined) requirePool(fleet, only);
    const {pools} = fleet;
    if (options.available) {
      const named =
        typeof options.available === 'string' ? [options.available] : pools.flatMap(({zones}) => zones);
      const zones = [...new Set(named.length > 0 ? named : fleet.workers.map(({zone}) => zone))];
      const commands = (zones.length > 0 ? zones : ['us-central1-a']).map(
        zone =>
          `gcloud compute tpus tpu-vm versions list --zone=${quoted(zone)} --project=${quoted(cloud.connection.project)}`,
      );
      return print(options.json, {commands}, commands);
    }
    const rows = fleet.names
      .filter(name => only === undefined || name === only)
      .map(name => {
        const found = pools.find(({pool}) => pool === name);
        return {
          pool: name,
          accelerator: found?.accelerator ?? null,
          runtime_version: found?.runtime_version ?? null,
          source: found?.source ?? null,
          source_version: found?.source_version ?? 0,
          jax_version: found?.environment.jax_version ?? null,
          workers: aliveIn(fleet, name).map(({name, bundle, source_report}) => ({
            worker: name,
            bundle,
            source_report,
          })),
        };
      });
    const lines = rows.flatMap(row => [
      `${row.pool}  ${row.accelerator ?? 'accelerator of the deployment'}  ${row.runtime_version ?? ''}  ${sourceText(row.source)}`.trimEnd(),
      ...row.workers.map(workerText),
    ]);
    print(options.json, {gleaner, pools: rows}, [`gleaner ${gleaner}`, ...lines]);
  });
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

function workerText({
  worker,
  bundle,
  source_report,
}: Pick<Worker, 'bundle' | 'source_report'> & {worker: string}): string {
  const code = source_report
    ? `${source_report.status}${source_report.error ? `: ${source_report.error}` : ''} ${ranText(source_report.ran as Document | null)}`
    : 'no report of its code';
  return `  ${worker}  worker bundle ${bundle?.slice(0, 12) ?? 'unknown'}  ${code}`.trimEnd();
}
