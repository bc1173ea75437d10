import {type Connection, connect, type Where} from './connect.ts';
import {CliError} from './errors.ts';
import {print, say} from './output.ts';
import {runWorkerModule} from './python.ts';

/** Report of `gleaner_worker.verify`. */
export type Report = {
  run: string;
  ok: boolean;
  samples: number;
  stored_once: number;
  missing: number;
  doubled: number;
  different: number;
  rejected: number;
  /** Stored samples that were cut to the length limit, as the spec asked. */
  truncated: number;
  shards: number;
  bytes: number;
  tokens: number;
  streams: StreamReport[];
  problems: string[];
};

type StreamReport = Pick<
  Report,
  'samples' | 'stored_once' | 'missing' | 'doubled' | 'different' | 'rejected' | 'shards' | 'problems'
> & {stream: string};

/** Verifies a run. Exit 0: every sample is stored exactly once and equals its stream. Exit 1: another result, or no result. */
export async function verify(run: string, options: Where & {json?: boolean}): Promise<void> {
  const connection = await connect(options);
  try {
    const report = await verifyRun(connection, run, options.json ? undefined : say);
    print(options.json, report, verdictLines(report));
    process.exitCode = report.ok ? 0 : 1;
  } finally {
    await connection.close();
  }
}

/** Reads a run again. A failure becomes a report with a problem. `say` gets a line of progress every few seconds. */
export async function verifyRun(
  connection: Connection,
  run: string,
  say?: (line: string) => void,
): Promise<Report> {
  const env = connection.storage_endpoint ? {STORAGE_EMULATOR_HOST: connection.storage_endpoint} : {};
  const args = ['gleaner_worker.verify', '--bucket', connection.bucket, '--run', run, '--json'];
  if (!say) args.push('--quiet');
  const {code, stdout, stderr} = await runWorkerModule(args, env, say ?? (() => {}));
  const last = stdout.at(-1);
  if (!last)
    throw new CliError(
      `Failed to verify ${run}: ${stderr.at(-1) ?? `the verifier ended with exit ${code} and printed nothing`}`,
    );
  return JSON.parse(last) as Report;
}

/** Report as lines for a person. */
export function verdictLines(report: Report): string[] {
  const lines = report.streams.map(
    s =>
      `  stream ${s.stream}  ${s.stored_once} of ${s.samples} stored exactly once in ${s.shards} shards, ${s.rejected} rejected` +
      `, ${s.missing} missing, ${s.doubled} doubled, ${s.different} different`,
  );
  const problems = [...report.problems, ...report.streams.flatMap(s => s.problems)];
  const total =
    `${report.samples} samples: ${report.stored_once} stored exactly once, ${report.rejected} rejected with a reason, ` +
    `${report.missing} missing, ${report.doubled} doubled, ${report.different} different from the stream` +
    `${report.truncated > 0 ? `, ${report.truncated} truncated as asked` : ''}; ` +
    `${report.tokens} tokens, ${(report.bytes / 1e6).toFixed(1)} MB`;
  const verdict = report.ok ? `verified: ${report.run}` : `NOT verified: ${report.run}`;
  return [...lines, ...problems.map(problem => `  problem: ${problem}`), total, verdict];
}
