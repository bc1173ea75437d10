import {withCloud} from '../../client/cloud/cloud.ts';
import {readFleet} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import type {Attempt} from '../../client/json/tpus.ts';
import {dollarText, durationText} from '../../client/text/format.ts';
import {print} from '../../client/text/output.ts';
import {viewHosts} from '../../client/views/hosts.ts';
import {hourText, readTpu, type TpuRow} from '../../client/views/tpus.ts';
import type {Worker} from '../../shared/domain/records/worker.ts';
import {utcText} from '../../shared/domain/time.ts';
import {symptomText} from '../../shared/domain/worker/provider-states.ts';
import {unknownTpu} from './changes.ts';
import {ageText} from './list.ts';

/** Prints one TPU whole, with its newest ended incarnations. */
export async function status(name: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const now = Date.now();
    const view = await readTpu(cloud, name, fleet, now);
    if (!view) throw unknownTpu([name], fleet);
    const {row, worker, attempts} = view;
    const {provider_state, queue_state, health, provisioning, symptoms, ready_at} = worker;
    const node = {provider_state, queue_state, health, provisioning, ready_at};
    const hosts = viewHosts(worker).map(({isKnown: _, ...host}) => host);
    print<'tpus status'>(options.json, {...row, ...node, symptoms, hosts, costs: worker.costs, attempts}, [
      ...tpuLines(row, worker, now),
      ...attempts.flatMap(attemptLines),
    ]);
  });
}

/** `boot 2.1 min, extract 12 min`, the dollars of each phase behind it. */
function phasesText(found: Attempt['phases']): string {
  return Object.entries(found)
    .map(
      ([name, {seconds, usd}]) =>
        `${name.replace('_', ' ')} ${durationText(seconds)}${usd ? ` (${dollarText(usd)})` : ''}`,
    )
    .join(', ');
}

function tpuLines(row: TpuRow, worker: Worker, now: number): string[] {
  const line = (title: string, value: string | null) =>
    value === null || value === '' ? [] : [`  ${title.padEnd(11)} ${value}`];
  const age = (at: string | null) => at && `${utcText(at)}, ${ageText(at, now)} ago`;
  const {samples_done, samples_total, tokens_per_s} = worker;
  const done = samples_done === null ? '' : `, ${samples_done} of ${samples_total ?? 'unknown'} samples`;
  const rate = tokens_per_s === null ? '' : `, ${Math.round(tokens_per_s)} tokens/s`;
  return [
    `${row.tpu}  ${row.status}`,
    ...line('phase', `${row.phase}, incarnation ${row.incarnation}`),
    ...line('since', Date.parse(row.since_at) === 0 ? null : age(row.since_at)),
    ...line('pool', `${row.pool}, ${row.zone}${row.accelerator ? `, ${row.accelerator}` : ''}`),
    ...line('node', worker.provider_state),
    ...line('queue', worker.queue_state),
    ...line('valid until', worker.valid_until_at && utcText(worker.valid_until_at)),
    ...line('health', worker.health),
    ...worker.symptoms.flatMap(symptom => line('symptom', symptomText(symptom))),
    ...line('heartbeat', worker.host_count > 1 ? null : age(worker.heartbeat_at)),
    ...(worker.host_count > 1 ? viewHosts(worker) : []).flatMap(({host, phase, address, heartbeat_at}) =>
      line(`host ${host}`, [phase, address, age(heartbeat_at) ?? 'no report yet'].filter(Boolean).join(', ')),
    ),
    ...line('boot step', row.boot_step),
    ...line('works on', row.work && `${row.work}${row.activity ? ` (${row.activity})` : ''}${done}${rate}`),
    ...line('waits for', worker.waits_for),
    ...line('cost', `${dollarText(row.cost_usd)} in this life, ${hourText(row.usd_per_hour)}`),
    ...line('waits until', worker.blocked_until_at && utcText(worker.blocked_until_at)),
    ...line('slot', row.held ? `empty until \`gleaner tpus recreate ${row.tpu}\`` : null),
    ...line('reason', row.reason),
    ...line('last error', row.last_error),
    ...line('last end', worker.last_death),
  ];
}

function attemptLines(attempt: Attempt): string[] {
  const {incarnation, cause, evidence, ready_at, ended_at, cost_usd, work, log, last_phase} = attempt;
  const ran = ready_at === null ? 'never READY' : `READY for ${ageText(ready_at, Date.parse(ended_at))}`;
  const during = [last_phase, work].filter(part => part !== null).join(' on ');
  return [
    `  attempt ${incarnation}, ended ${utcText(ended_at)}: ${cause} (${evidence})`,
    ...(phasesText(attempt.phases) ? [`    ${phasesText(attempt.phases)}`] : []),
    `    ${ran}, ${dollarText(cost_usd)}${during ? `, ${during}` : ''}${log ? `, log ${log}` : ''}`,
  ];
}
