import {setTimeout as sleep} from 'node:timers/promises';
import {z} from 'zod';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import {aliveIn, readFleet, requirePool} from '../../client/cloud/fleet.ts';
import {apply, POLL_MS, publishLine} from '../../client/cloud/send-message.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {CliError, UsageError} from '../../client/text/errors.ts';
import {counted, durationText} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {type HostCode, hostName, viewCode} from '../../client/views/hosts.ts';
import {ranText} from '../../client/views/job-view.ts';
import {parseValue} from '../../shared/contracts/messages/schemas.ts';
import {environment as environmentSchema, sourceChange} from '../../shared/domain/records/source.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {checkSource} from '../checks/repository.ts';
import {environmentOf, type SourceOptions, sourceOf, upload, uploadLines} from '../jobs/source.ts';
import {definedFields} from '../terminal/field-options.ts';

type UpdateOptions = CloudOptions & SourceOptions & {wait: boolean; check?: boolean};

/** Setup scripts and environments take minutes. */
const WAIT_S = 1800;
const SAY_AFTER_MS = 5000;

/** Changes the code of a pool, and waits until each running worker has it or keeps its old code. */
export async function update(pool: string, options: UpdateOptions): Promise<void> {
  const code = await sourceOf(options);
  const environment = await environmentOf(options);
  const change = definedFields({source: code.source, environment});
  if (Object.keys(change).length === 0)
    throw new UsageError(
      'There is nothing to update: give --bundle, --branch, --pr, --commit or a part of the environment; --branch with the same branch fetches it again',
    );
  const schema = z.strictObject({
    source: sourceChange.nullable().optional(),
    environment: environmentSchema.partial().optional(),
  });
  parseValue(schema, change, 'The update');
  await withCloud(options, async cloud => {
    const message = {action: 'update', pool, ...change};
    if (options.dry_run) {
      const commands = [...uploadLines(cloud, code), publishLine(cloud.connection, 'control', message)];
      return print<'update'>(options.json, {commands}, commands);
    }
    const fleet = await readFleet(cloud);
    requirePool(fleet, pool);
    const {source = null} = fleet.pools.find(each => each.pool === pool) ?? {};
    if (options.check ?? true) await checkSource(`update pool ${pool}`, code.source, source);
    const began = performance.now();
    await upload(cloud, code);
    const done = await apply(cloud, message);
    if (!options.wait) return print<'update'>(options.json, {done}, [done]);
    const workers = await untilReported(cloud, pool);
    const seconds = Math.round((performance.now() - began) / 10) / 100;
    const hosts = workers.flatMap(worker => viewCode(worker).map(code => ({worker, code})));
    const isReady = hosts.every(({code}) => code.status === 'ready');
    const reports = hosts.map(({code}) => code);
    const none = `no TPU of pool ${pool} is running: the next one starts with this code`;
    print<'update'>(options.json, {done, ready: isReady, seconds, workers: reports}, [
      ...hosts.map(({worker, code}) => reportLine(hostName(worker, code.host), code)),
      workers.length === 0 ? none : `${counted(workers.length, 'TPU')} in ${durationText(seconds)}`,
    ]);
    if (!isReady) process.exitCode = 1;
  });
}

function reportLine(name: string, {status, ran, error}: HostCode): string {
  if (status === 'ready') return `${name}  ready  ${ranText(ran as Document | null)}`.trimEnd();
  return `${name}  failed: ${error ?? 'without a reason'}; the earlier code stays`;
}

/** True if a host has not reported the version or a later one. */
function isPreparing(worker: Worker, version: number): boolean {
  const done = viewCode(worker).filter(code => code.version >= version && code.status !== 'preparing');
  return done.length < worker.host_count;
}

/** Waits until each host of the pool has reported the pool's version or a later one. A worker that ends leaves the list. */
async function untilReported(cloud: Cloud, name: string): Promise<Worker[]> {
  const began = Date.now();
  let [noted_ms, version] = [began, 0];
  for (;;) {
    const fleet = await readFleet(cloud);
    const pool = fleet.pools.find(({pool}) => pool === name);
    version = Math.max(version, pool?.source_version ?? 0);
    const alive = aliveIn(fleet, name);
    const open = alive.filter(worker => isPreparing(worker, version));
    if (open.length === 0) return alive;
    const names = open.map(({name}) => name).join(', ');
    if (Date.now() - began > WAIT_S * 1000)
      throw new CliError(`No report of ${names} after ${WAIT_S} s: see \`gleaner versions ${name}\``);
    if (Date.now() - noted_ms > SAY_AFTER_MS) {
      say(`waiting for ${names}: workers ask every ${pool?.poll_s ?? 'few'} s`);
      noted_ms = Date.now();
    }
    await sleep(POLL_MS);
  }
}
