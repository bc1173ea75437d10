import {bytesText, counted, durationText, numberText} from '../../client/text/format.ts';
import {print, quoted, say} from '../../client/text/output.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import {type CreateOptions, type CreateReport, createStreams} from './create-streams.ts';

/** `gleaner streams create`: splits a dataset into streams. */
export async function create(
  sources: string[],
  {json, quiet: _, ...options}: CreateOptions & {json?: boolean; quiet?: boolean},
): Promise<void> {
  const stopped = abortedAtStop();
  const column = options.column ?? (options.as === 'arc' ? 'examples' : undefined);
  const report = await createStreams(sources, {...options, column}, {say, stopped});
  print<'streams create'>(json, report, linesOf(report, options.output_dir));
}

function linesOf(report: CreateReport, folder: string): string[] {
  const {samples, streams, bytes, seconds} = report;
  const sizes = streams.map(stream => stream.samples);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const each =
    least === most ? counted(least, 'sample') : `${numberText(least)} to ${counted(most, 'sample')}`;
  const what = `${counted(streams.length, 'stream')} of ${each}, ${counted(samples, 'sample')} in total`;
  if (report.status === 'planned') return [`Would write ${what} into ${folder}`];
  const done =
    report.status === 'complete'
      ? `${folder} is complete: ${what}; nothing was changed`
      : `Wrote ${what}, ${bytesText(bytes)}, into ${folder} in ${durationText(seconds)}`;
  return [done, `Try next: gleaner streams upload ${quoted(folder)} --run my-run`];
}
