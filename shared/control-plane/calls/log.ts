import {AsyncLocalStorage} from 'node:async_hooks';
import {jsonText} from '../../contracts/printable.ts';

/** Labels of log entries that metrics count: `terraform/alerts.tf` has an alert for each signal. */
export const SIGNALS = [
  'budget-spent',
  'creates-late',
  'creates-stopped',
  'document-left-alone',
  'job-failed',
  'job-long',
  'notices-failing',
  'orphans',
  'ping-failed',
  'run-failed',
  'run-paused',
  'samples-rejected',
  'silence-guard',
  'tick-completed',
] as const;

/** Fields of an entry besides its message. The names in `IDS` are the field names of events. */
export type LogFields = {
  [field: string]: string | number | boolean | null | undefined;
  signal?: (typeof SIGNALS)[number] | undefined;
};

export type Log = (severity: 'INFO' | 'WARNING' | 'ERROR', message: string, fields?: LogFields) => void;

export type Call = {
  function: string;
  /** Id of the CloudEvent; for a message on a topic, the id of the message. */
  message_id?: string | undefined;
  /** W3C `traceparent`: 00-TRACE-SPAN-01. */
  traceparent?: string | undefined;
};

/** Fields that become labels: Cloud Logging indexes labels. */
const IDS = [
  'function',
  'run',
  'stream',
  'job',
  'exec',
  'worker',
  'incarnation',
  'epoch',
  'message_id',
  'object',
  'signal',
];
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

const calls = new AsyncLocalStorage<Call>();

export function duringCall<T>(call: Call, work: () => Promise<T>): Promise<T> {
  return calls.run(call, work);
}

/** Writes each entry as a JSON line that Cloud Logging parses: severity, time, message, labels, trace, and other fields as `jsonPayload`. */
export function jsonLog(write: (line: string) => void, now: () => number, project: string): Log {
  return (severity, message, fields = {}) => {
    const {traceparent, ...call} = calls.getStore() ?? {};
    const known = Object.entries({...call, ...fields}).filter(
      ([, value]) => value !== undefined && value !== null,
    );
    const ids = known.filter(([field]) => IDS.includes(field));
    const rest = known.filter(([field]) => !IDS.includes(field));
    const labels = Object.fromEntries(ids.map(([field, value]) => [field, String(value)]));
    const entry = {
      severity,
      time: new Date(now()).toISOString(),
      message,
      ...(ids.length > 0 ? {'logging.googleapis.com/labels': labels} : {}),
      ...traceOf(traceparent, project),
      ...Object.fromEntries(rest),
    };
    write(`${jsonText(entry)}\n`);
  };
}

function traceOf(traceparent: string | undefined, project: string): object {
  const [, trace, span, flags] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (!trace || !span || !flags) return {};
  return {
    'logging.googleapis.com/trace': `projects/${project}/traces/${trace}`,
    'logging.googleapis.com/spanId': span,
    'logging.googleapis.com/trace_sampled': (Number.parseInt(flags, 16) & 1) === 1,
  };
}
