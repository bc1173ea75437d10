/** A TPU or one of its earlier incarnations: its phases in seconds and dollars, its end, and the end of its log. */
import {ObjectTooLarge} from '../../shared/contracts/errors.ts';
import {logObject} from '../../shared/domain/names.ts';
import {hasEnded} from '../../shared/domain/records/worker.ts';
import {type LifePhases, phasesAtEnd} from '../../shared/domain/worker/life-phases.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import {readFleet} from '../cloud/fleet.ts';
import type {Answers} from '../json/index.ts';
import {type LogLine, parseLogLine} from '../logs/log-line.ts';
import {readTpu, type TpuView} from './tpus.ts';
import {explain} from './why.ts';

const MAX_LOG_BYTES = 8_000_000;
const MOST_LINES = 80;

/** `lines`: null where the object is too large for a page. */
export type LogTail = {object: string; lines: LogLine[] | null};

/** `incarnation`: the one that is shown. `attempt`: its end, null while it lives. */
export type TpuPage = TpuView & {
  incarnation: number;
  attempt: TpuView['attempts'][number] | null;
  phases: LifePhases;
  log: LogTail;
  why: Answers['why'];
};

/** `logs`: the bucket of the logs. Undefined for a TPU or an incarnation without a document. */
export async function readTpuPage(
  cloud: Cloud,
  logs: Objects,
  {name, incarnation}: {name: string; incarnation: number | undefined},
  now: number,
): Promise<TpuPage | undefined> {
  const view = await readTpu(cloud, name, await readFleet(cloud), now);
  if (!view) return undefined;
  const shown = incarnation ?? view.worker.incarnation;
  const attempt = view.attempts.find(each => each.incarnation === shown) ?? null;
  const isLiving = shown === view.worker.incarnation && !hasEnded(view.worker);
  if (!attempt && shown !== view.worker.incarnation) return undefined;
  return {
    ...{...view, attempt, incarnation: shown},
    phases: isLiving ? phasesAtEnd(view.worker, undefined, now) : (attempt?.phases ?? {}),
    log: await readLog(logs, logObject(name, shown)),
    why: await explain(cloud, name, {tpu: true}),
  };
}

async function readLog(logs: Objects, object: string): Promise<LogTail> {
  try {
    const bytes = await logs.read(object, {max_bytes: MAX_LOG_BYTES});
    const lines = bytes ? Buffer.from(bytes).toString('utf8').trimEnd().split(/\r?\n/) : [];
    return {object, lines: lines.slice(-MOST_LINES).map(parseLogLine)};
  } catch (error) {
    if (error instanceof ObjectTooLarge) return {object, lines: null};
    throw error;
  }
}
