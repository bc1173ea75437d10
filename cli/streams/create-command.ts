import {bytesText, counted, durationText, numberText} from '../terminal/format.ts';
import {print, quoted, say} from '../terminal/output.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {type CreateReport, createStreams} from './create.ts';
import type {Format} from './sources/formats.ts';

export type CreateCommandOptions = {
  numStreams: number;
  outputDir: string;
  maxSamples?: number;
  maxSamplesPerStream?: number;
  startIndex?: number;
  endIndex?: number;
  column?: string;
  template?: string;
  as?: 'arc';
  shuffleSeed?: number;
  format?: Format;
  revision?: string;
  split?: string;
  config?: string;
  dryRun?: boolean;
  force?: boolean;
  json?: boolean;
};

/** `gleaner streams create`: splits a dataset into streams. */
export async function create(sources: string[], given: CreateCommandOptions): Promise<void> {
  const stopped = new AbortController();
  void stopSignal().then(() => stopped.abort());
  const report = await createStreams(
    sources,
    {
      output_dir: given.outputDir,
      num_streams: given.numStreams,
      max_samples: given.maxSamples,
      max_samples_per_stream: given.maxSamplesPerStream,
      start_index: given.startIndex,
      end_index: given.endIndex,
      column: given.column ?? (given.as === 'arc' ? 'examples' : undefined),
      template: given.template,
      as: given.as,
      shuffle_seed: given.shuffleSeed,
      format: given.format,
      revision: given.revision,
      split: given.split,
      config: given.config,
      dry_run: given.dryRun,
      force: given.force,
    },
    {say, stopped: stopped.signal},
  );
  print(given.json, report, linesOf(report, given.outputDir));
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
