import {withCloud} from '../cloud/cloud.ts';
import type {CloudOptions} from '../cloud/connect.ts';
import {bytesText, counted} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';
import {abortedAtStop} from '../terminal/stop-signal.ts';
import {type Mirrored, mirrorModel} from './mirror.ts';

type Options = CloudOptions & {revision?: string};

/** `gleaner models mirror`. */
export async function mirror(model: string, options: Options): Promise<void> {
  const stop = abortedAtStop();
  const {revision} = options;
  const report = await withCloud(options, cloud => mirrorModel(cloud, model, {revision, say, stop}));
  print<'models mirror'>(options.json, report, [
    mirroredText(report),
    `  gleaner run start my-run --model ${report.address} …`,
  ]);
}

/** The copy in one line. */
export function mirroredText({model, commit, address, files, bytes, copied_bytes}: Mirrored): string {
  const copied = copied_bytes > 0 ? `${bytesText(copied_bytes)} copied` : 'already there';
  return `${model} at commit ${commit} is ${address}: ${counted(files, 'file')}, ${bytesText(bytes)}, ${copied}`;
}
