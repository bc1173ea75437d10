import {type CloudOptions, connect, storeOf} from '../../client/connection/connect.ts';
import {type Connection, storageVariables} from '../../client/connection/connection.ts';
import type {StoredComparison} from '../../client/json/compared-manifest.ts';
import type {Answers} from '../../client/json/index.ts';
import {runWorkerModule} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, type Column, counted, numberText} from '../../client/text/format.ts';
import {complain, print, type StyledLine, say, table} from '../../client/text/output.ts';
import {runRecords} from '../../shared/control-plane/documents/documents.ts';
import {expiresFrom} from '../../shared/domain/records/run.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {compareWithReference, comparisonLines, storeComparison} from './reference.ts';

/** Report of `gleaner_worker.verify`. `truncated`: stored samples that were cut to the length limit, as the spec asked. */
export type Report = Answers['run verify'];

/**
 * Verifies a run. Exit 0: every sample is stored exactly once and equals its stream, and the run has its digest. Exit 1: another result, or no result. `reference`:
 * samples of a verified run to compute again with transformers.
 */
export async function verify(
  run: string,
  options: CloudOptions & {reference?: number; digest?: string; unanchored?: true},
): Promise<void> {
  const connection = await connect(options);
  try {
    const report = await verifyRun(connection, run, options.json ? undefined : say, options);
    const compared = report.ok && options.reference !== undefined;
    const reference = compared ? await compare(connection, run, options.reference ?? 1) : undefined;
    print<'run verify'>(options.json, {...report, ...(reference ? {reference} : {})}, [
      ...verdictLines(report),
      ...(reference ? comparisonLines(reference) : []),
    ]);
    if (!report.ok) await sayExpiry(connection, run);
    process.exitCode = report.ok ? 0 : 1;
  } finally {
    await connection.close();
  }
}

async function compare(connection: Connection, run: string, samples: number): Promise<StoredComparison> {
  const {project, bucket, storage_endpoint: endpoint, token} = connection;
  const found = await compareWithReference(connection, run, samples, say);
  const reference = {at: new Date().toISOString(), ...found};
  await storeComparison(openObjects({project, bucket, endpoint, token}), run, reference);
  return reference;
}

/** Missing shards of a run that expires are no fault. */
async function sayExpiry(connection: Connection, run: string): Promise<void> {
  const found = await runRecords.get(storeOf(connection), run).catch(() => undefined);
  const from = found ? expiresFrom(found) : null;
  if (from !== null && Date.parse(from) < Date.now())
    complain(`Shards of ${run} have expired since ${from}: expire_days is ${found?.expire_days}`);
}

/**
 * Reads a run again. A failure becomes a report with a problem. `say` gets a line of progress every few seconds. `told`: the Python that
 * reads starts now, and begins when this becomes true.
 */
export async function verifyRun(
  connection: Connection,
  run: string,
  say?: (line: string) => void,
  {digest, unanchored, told}: {digest?: string; unanchored?: true; told?: Promise<boolean>} = {},
): Promise<Report> {
  const args = ['gleaner_worker.verify', '--bucket', connection.bucket, '--run', run];
  if (!say) args.push('--quiet');
  if (digest) args.push('--digest', digest);
  if (unanchored) args.push('--unanchored');
  if (told) args.push('--when-told');
  const call = [args, storageVariables(connection), say ?? (() => {}), undefined, undefined, {told}] as const;
  const {code, stdout, stderr} = await runWorkerModule(...call);
  const last = stdout.at(-1);
  if (!last)
    throw new CliError(
      `Failed to verify ${run}: ${stderr.at(-1) ?? `the verifier ended with exit ${code} and printed nothing`}`,
    );
  return JSON.parse(last) as Report;
}

const COUNTS = [
  ...(['samples', 'stored_once', 'rejected', 'missing', 'doubled', 'different', 'shards'] as const),
];
const COLUMNS: Column<Report['streams'][number]>[] = [
  {title: 'Stream', cell: ({stream}) => stream},
  ...COUNTS.map(name => ({
    title: name.replace('_', ' '),
    cell: (stream: Report['streams'][number]) => numberText(stream[name]),
    right: true,
  })),
];

export function verdictLines(report: Report): StyledLine[] {
  const problems = [...report.problems, ...report.streams.flatMap(stream => stream.problems)];
  const truncated = report.truncated > 0 ? `, ${numberText(report.truncated)} truncated as asked` : '';
  return [
    ...(report.streams.length > 0 ? table(COLUMNS, report.streams) : []),
    ...problems.map(problem => ({text: `problem: ${problem}`, style: 'red' as const})),
    {
      text:
        `${counted(report.samples, 'sample')}: ${numberText(report.stored_once)} stored exactly once, ` +
        `${numberText(report.rejected)} rejected with a reason, ${numberText(report.missing)} missing, ` +
        `${numberText(report.doubled)} doubled, ${numberText(report.different)} different from the stream${truncated}; ` +
        `${counted(report.tokens, 'token')}, ${bytesText(report.bytes)}`,
    },
    ...(report.digest === null ? [] : [{text: `digest: ${report.digest}`}]),
    ...(report.missing > 0
      ? [{text: `next step: \`gleaner rebuild ${report.run}\` computes again what is missing`}]
      : []),
    report.ok
      ? {text: `${report.anchored ? 'verified' : 'unanchored'}: ${report.run}`, style: ['bold', 'green']}
      : {text: `NOT verified: ${report.run}`, style: ['bold', 'red']},
  ];
}
