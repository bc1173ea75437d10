export type LogFields = {[field: string]: string | number | boolean | null | undefined};

/** One JSON line an entry, in the shape that Cloud Logging reads. */
export type Log = (severity: 'INFO' | 'WARNING' | 'ERROR', message: string, fields?: LogFields) => void;

export function jsonLog(write: (line: string) => void, now: () => number): Log {
  return (severity, message, fields = {}) =>
    write(`${JSON.stringify({severity, time: new Date(now()).toISOString(), message, ...fields})}\n`);
}
