import {workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {attemptRecords} from '../../shared/control-plane/documents/history-documents.ts';
import {paths} from '../../shared/domain/names.ts';
import {utcText} from '../../shared/domain/time.ts';
import {symptomText} from '../../shared/domain/worker/provider-states.ts';
import type {Worker} from '../../shared/domain/worker/worker.ts';
import type {Store} from '../../shared/ports.ts';
import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {readFleet} from '../cloud/fleet.ts';
import {type Attempt, phases} from '../json/tpus.ts';
import {dollarText, durationText} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';
import {ageText} from './list.ts';
import {unknownTpu} from './named.ts';
import {hourText, rowOf, type TpuRow} from './tpu-row.ts';

const MOST_ATTEMPTS = 20;

/** Prints one TPU whole, with its newest ended incarnations. */
export async function status(name: string, options: CloudOptions): Promise<void> {
  await withCloud(options, async cloud => {
    const fleet = await readFleet(cloud);
    const worker =
      fleet.workers.find(each => each.name === name) ?? (await workerRecords.get(cloud.store, name));
    if (!worker) throw unknownTpu([name], fleet);
    const now = Date.now();
    const row = rowOf(worker, fleet.pools, now);
    const attempts = await attemptsOf(cloud.store, name);
    const {provider_state, queue_state, health, provisioning, symptoms, ready_at} = worker;
    const node = {provider_state, queue_state, health, provisioning, ready_at};
    print<'tpus status'>(options.json, {...row, ...node, symptoms, costs: worker.costs, attempts}, [
      ...tpuLines(row, worker, now),
      ...attempts.flatMap(attemptLines),
    ]);
  });
}

/** Evidence for the end of an incarnation, by the kind of its cause. */
const EVIDENCE: Record<string, string> = {
  taken: 'certain: Cloud TPU reported it',
  setup: 'certain: the node never became usable',
  unheard: 'likely: the host never spoke',
  boot: 'certain: its agent never started',
  broken: 'certain: the machine cannot work',
  crashed: 'certain: its agent reported it',
  silent: 'likely: the agent stopped speaking',
  hung: 'likely: the agent made no progress',
  asked: 'certain: a message asked for it',
  'not-needed': 'certain: no work was left',
};

/** The newest ended incarnations, the newest first. An invalid document is named and left out. */
export async function attemptsOf(store: Store, tpu: string): Promise<Attempt[]> {
  const order_by = {field: 'incarnation', direction: 'desc'} as const;
  const stored = await store.query(`${paths.worker(tpu)}/attempts`, {order_by, limit: MOST_ATTEMPTS});
  const found = attemptRecords.parseAll(stored, ({message}) => say(message));
  return found.map(({incarnation, cause, ready_at, ended_at, cost_usd, ...others}) => ({
    ...{incarnation, cause, ready_at, ended_at, cost_usd},
    evidence: EVIDENCE[text(others.cause_kind) ?? ''] ?? 'unknown',
    last_phase: text(others.last_phase),
    work: text(others.work),
    phases: phasesOf(others.phases),
    log: text(others.log),
  }));
}

/** The phases of an attempt; empty for an attempt of an earlier release. */
function phasesOf(value: unknown): Attempt['phases'] {
  return phases.safeParse(value).data ?? {};
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

/** Fields that the schema of an attempt leaves open may have any value. */
function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
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
    ...line('heartbeat', age(worker.heartbeat_at)),
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
  const ran = ready_at === null ? 'never READY' : `READY for ${secondsText(ready_at, ended_at)}`;
  const during = [last_phase, work].filter(part => part !== null).join(' on ');
  return [
    `  attempt ${incarnation}, ended ${utcText(ended_at)}: ${cause} (${evidence})`,
    ...(phasesText(attempt.phases) ? [`    ${phasesText(attempt.phases)}`] : []),
    `    ${ran}, ${dollarText(cost_usd)}${during ? `, ${during}` : ''}${log ? `, log ${log}` : ''}`,
  ];
}

function secondsText(from: string, to: string): string {
  return durationText(Math.max(0, Date.parse(to) - Date.parse(from)) / 1000);
}
