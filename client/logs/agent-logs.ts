/** Logs of agents: of one TPU, or of the TPUs of a run in the order of time. */
import {setTimeout as sleep} from 'node:timers/promises';
import {forEachConcurrently} from '../../shared/control-plane/calls/concurrency.ts';
import {workerRecords} from '../../shared/control-plane/documents/documents.ts';
import {parseWorkerName, paths} from '../../shared/domain/names.ts';
import {hasEnded} from '../../shared/domain/records/worker.ts';
import {FIRST_HOST, hostsOf} from '../../shared/domain/worker/hosts.ts';
import {openObjects} from '../../shared/google/objects.ts';
import type {Objects, Store} from '../../shared/ports/ports.ts';
import type {Cloud} from '../cloud/cloud.ts';
import type {Connection} from '../connection/connection.ts';
import {tpuStatus} from '../explanations/tpu-status.ts';
import {printJson, printText, quoted, say} from '../text/output.ts';
import {type AgentLog, openAgentLog} from './agent-log.ts';
import {type LogLine, logStyle, logText, parseLogLine} from './log-line.ts';
import {type Incarnation, tpusOfRun} from './run-tpus.ts';
import {Tail} from './tail.ts';
import {isRunOver} from './target.ts';

export type LogOptions = {
  follow?: boolean;
  tail: number;
  since?: string;
  /** Incarnation of a TPU, in place of the newest. */
  incarnation?: number;
  json?: boolean;
};

type Source = Incarnation & {host: number};
type AgentLine = Source & {line: LogLine};

const FOLLOW_MS = 1000;
/** Interval of searches for further TPUs of a run. */
const SEARCH_MS = 10_000;
/** Agents store their log every 15 s, so the last lines of a run come later than its end. */
const LAST_LINES_MS = 20_000;

export async function runLogs(cloud: Cloud, run: string, options: LogOptions): Promise<void> {
  const logs = agentLogs(openLogs(cloud.connection), options, ({tpu}) => tpu);
  let over_ms: number | undefined;
  let [tpus, searched_ms]: [Incarnation[], number] = [[], 0];
  for (;;) {
    if (Date.now() - searched_ms >= SEARCH_MS) {
      tpus = await tpusOfRun(cloud.store, run);
      searched_ms = Date.now();
    }
    // The state is read before the logs: the logs of an ended run are complete.
    const isOver = await isRunOver(cloud.store, run);
    const isQuiet = isOver && (await haveEnded(cloud.store, tpus));
    await logs.read(tpus.map(each => ({...each, host: FIRST_HOST})));
    if (!options.follow) return logs.sayNothing(`no TPU has worked on run ${run}`);
    if (isOver) over_ms ??= Date.now();
    if (isQuiet || (over_ms !== undefined && Date.now() - over_ms > LAST_LINES_MS)) return;
    await sleep(FOLLOW_MS);
  }
}

/** Prints the log of each host of an incarnation, by default of the newest, and with `follow` of each later one, until Ctrl-C. */
export async function tpuLogs(cloud: Cloud, tpu: string, options: LogOptions): Promise<void> {
  let hosts: number[] = [FIRST_HOST];
  const nameOf = ({host}: Source) => (hosts.length > 1 ? `${tpu}/${host}` : '');
  const logs = agentLogs(openLogs(cloud.connection), options, nameOf);
  let shown = 0;
  for (;;) {
    const worker = await workerRecords.get(cloud.store, tpu);
    // An earlier incarnation had as many hosts as the newest.
    if (worker) hosts = hostsOf(worker);
    const incarnation = options.incarnation ?? worker?.incarnation ?? 0;
    if (shown > 0 && incarnation > shown) say(`${tpu} is created again: incarnation ${incarnation}`);
    shown = incarnation;
    await logs.read(incarnation > 0 ? hosts.map(host => ({tpu, incarnation, host})) : []);
    if (!options.follow) {
      const isNow = worker?.incarnation === incarnation && !hasEnded(worker);
      const who = `${tpu} is ${worker && tpuStatus(worker)}, and incarnation ${incarnation} has written no log yet`;
      const boot = await bootText(cloud, tpu);
      return logs.sayNothing(`slot ${tpu} has had no TPU yet`, boot, isNow ? who : undefined);
    }
    await sleep(FOLLOW_MS);
  }
}

type Place = Pick<Connection, 'project' | 'deployment' | 'bucket' | 'storage_endpoint' | 'token'>;

export function openLogs(place: Place): Objects {
  const {project, storage_endpoint: endpoint, token} = place;
  return openObjects({project, bucket: logsBucketOf(place, process.env), endpoint, token});
}

/** Bucket of the agents' logs. A local cloud has one bucket for all; terraform/buckets.tf names the bucket of a deployment. */
export function logsBucketOf(
  {project, deployment, bucket, storage_endpoint}: Omit<Place, 'token'>,
  env: NodeJS.ProcessEnv,
): string {
  if (storage_endpoint !== undefined) return bucket;
  return env.GLEANER_LOGS_BUCKET || `${project}-${deployment}-logs`;
}

/** Prints the output of the startup script. */
const BOOT_LOG = 'sudo journalctl -u google-startup-scripts';

/** The place of what a VM prints before its agent starts. */
async function bootText({connection, store}: Cloud, tpu: string): Promise<string> {
  const {storage_endpoint, project} = connection;
  if (storage_endpoint !== undefined)
    return '; the console of its VM is in logs/ of the folder of the local cloud';
  const {pool = '', zone = 'ZONE'} = parseWorkerName(tpu) ?? {};
  const {provider} = (pool && (await store.get(paths.pool(pool)))) || {};
  const place = `--zone=${zone} --project=${quoted(project)}`;
  const line =
    provider === 'compute-engine'
      ? `gcloud compute ssh ${tpu} ${place} --command='${BOOT_LOG}'`
      : `gcloud compute tpus tpu-vm ssh ${tpu} ${place} --command='${BOOT_LOG}'`;
  return `; \`${line}\` prints its boot`;
}

async function haveEnded(store: Store, tpus: readonly Incarnation[]): Promise<boolean> {
  const found = await Promise.all(
    tpus.map(async ({tpu, incarnation}) => {
      const worker = await workerRecords.get(store, tpu).catch(() => undefined);
      return !worker || worker.incarnation !== incarnation || hasEnded(worker);
    }),
  );
  return found.every(Boolean);
}

/** Logs that are read again and again. Each line is written once. `nameOf`: the name that stands before each line; empty for none. */
function agentLogs(objects: Objects, options: LogOptions, nameOf: (source: Source) => string) {
  const logs = new Map<string, AgentLog>();
  let [lines, width, isFirst, missing]: [number, number, boolean, string[]] = [0, 0, true, []];
  const logOf = ({tpu, incarnation, host}: Source): AgentLog => {
    const name = `${tpu}#${incarnation}/${host}`;
    const log = logs.get(name) ?? openAgentLog(objects, tpu, incarnation, host);
    logs.set(name, log);
    return log;
  };
  const write = ({line, ...source}: AgentLine) => {
    if (options.json) return printJson<'logs'>({...source, ...fieldsOf(line)});
    const prefix = width > 0 ? `${nameOf(source).padEnd(width)} | ` : '';
    const style = logStyle(line);
    printText(logText(line).map(text => ({text: `${prefix}${text}`, style})));
  };
  const tail = new Tail(options.tail, write);
  return {
    async read(sources: readonly Source[]): Promise<void> {
      const batch: AgentLine[][] = [];
      missing = [];
      await forEachConcurrently(sources, async each => {
        const log = logOf(each);
        const found = await log.read();
        const newest = found && sinceOf(found, each, options.since);
        if (newest === undefined) missing.push(log.name);
        // No log has more lines of the tail of all logs than the tail has.
        else batch.push(isFirst ? newest.slice(Math.max(0, newest.length - options.tail)) : newest);
      });
      width = Math.max(width, ...sources.map(each => nameOf(each).length));
      lines += batch.flat().length;
      for (const line of batch.flat().sort((a, b) => (a.line.time ?? '').localeCompare(b.line.time ?? '')))
        tail.add(line);
      tail.flush();
      isFirst = false;
    },
    sayNothing(noTpu: string, boot = '', who = 'no log'): void {
      if (lines > 0) return;
      const names = missing.map(name => `gs://${objects.bucket}/${name}`);
      const none = `${who} in ${names.join(', ')}: a host stores its first lines when it has booted, or when its boot has failed${boot}`;
      if (logs.size === 0) say(noTpu);
      else say(names.length > 0 ? none : 'no line matches');
    },
  };
}

/** Lines since a time. A line without a time belongs to the line before. */
function sinceOf(found: readonly string[], source: Source, since: string | undefined): AgentLine[] {
  let time: string | null = null;
  const timed = found.map(parseLogLine).map(line => {
    time = line.time ?? time;
    return {...source, line: {...line, time}};
  });
  return since === undefined ? timed : timed.filter(({line}) => (line.time ?? '') >= since);
}

function fieldsOf({raw, time, severity, message, traceback}: LogLine) {
  return {time, severity, message: severity === null ? raw : message, traceback};
}
