/**
 * Lines of a host's log: JSON of the agent with time, severity and message, or text of the boot that begins with a time. Programs of a boot
 * write lines of any other form.
 */
import type {Style} from '../text/format.ts';

export type LogLine = {
  raw: string;
  /** Null for a line without a time. */
  time: string | null;
  severity: string | null;
  message: string;
  traceback: string | null;
};

/** The form of the function `say` of startup.sh. */
const BOOT_LINE = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (startup: .*)$/;

export function parseLogLine(raw: string): LogLine {
  const other = {raw, time: null, severity: null, message: raw, traceback: null};
  const [, boot_at, bootText] = BOOT_LINE.exec(raw) ?? [];
  if (boot_at && bootText) return {...other, time: new Date(boot_at).toISOString(), message: bootText};
  if (!raw.startsWith('{')) return other;
  let value: Record<string, unknown>;
  try {
    value = JSON.parse(raw);
  } catch {
    return other;
  }
  const {time, severity, message, traceback} = value;
  if (typeof message !== 'string') return other;
  return {
    raw,
    time: typeof time === 'string' && !Number.isNaN(Date.parse(time)) ? new Date(time).toISOString() : null,
    severity: typeof severity === 'string' ? severity : null,
    message,
    traceback: typeof traceback === 'string' ? traceback : null,
  };
}

/** `12:03:04 INFO message`, and the lines of a traceback below. */
export function logText({raw, time, severity, message, traceback}: LogLine): string[] {
  if (severity === null && time === null) return raw.split(/\r?\n/);
  const [first = '', ...more] = [...message.split('\n'), ...(traceback?.trimEnd().split('\n') ?? [])];
  const head = [time?.slice(11, 19), severity, first].filter(part => part !== undefined && part !== null);
  return [head.join(' '), ...more.map(line => `  ${line.replaceAll('\t', '    ')}`)];
}

const STYLES: Record<string, Style> = {WARNING: 'yellow', ERROR: 'red', CRITICAL: 'red'};

export function logStyle({severity}: LogLine): Style | undefined {
  return severity === null ? undefined : STYLES[severity];
}
