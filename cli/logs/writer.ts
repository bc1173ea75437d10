/** Lines of logs on standard output, for a person or as one JSON object a line. */
import {printJson} from '../terminal/output.ts';
import {printLines} from '../terminal/styled-lines.ts';
import {type LogLine, logStyle, logText} from './log-line.ts';
import type {Incarnation} from './run-tpus.ts';

export type AgentLine = Incarnation & {line: LogLine};

/** Writes a line of an agent. `width` above 0: the name of the TPU stands before each line. */
export function writeAgentLine({tpu, incarnation, line}: AgentLine, width: number, json = false): void {
  if (json) {
    printJson<'logs'>({tpu, incarnation, ...fieldsOf(line)});
    return;
  }
  const prefix = width > 0 ? `${tpu.padEnd(width)} | ` : '';
  const style = logStyle(line);
  printLines(logText(line).map(text => ({text: `${prefix}${text}`, style})));
}

function fieldsOf({raw, time, severity, message, traceback}: LogLine) {
  return {time, severity, message: severity === null ? raw : message, traceback};
}
