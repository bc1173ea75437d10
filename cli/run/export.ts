import {existsSync} from 'node:fs';
import {resolve} from 'node:path';
import {outputsPrefix} from '../../shared/domain/names.ts';
import {type CloudOptions, connect} from '../cloud/connect.ts';
import type {Answers} from '../json/index.ts';
import {runWorkerModule} from '../python/python.ts';
import {CliError} from '../terminal/errors.ts';
import {bytesText, counted} from '../terminal/format.ts';
import {print, say} from '../terminal/output.ts';

type Options = CloudOptions & {layer: number; site?: string; dtype: string; output: string};

/** `export.json` of the folder. */
type Exported = Omit<Answers['run export'], 'output'>;

const BYTES: Record<string, number> = {float32: 4, float16: 2};

/** Writes one layer of a run to numpy files: its rows, and the stream, the sample, the position and the token of each row. */
export async function exportRun(run: string, options: Options): Promise<void> {
  const output = resolve(options.output);
  if (existsSync(output))
    throw new CliError(`Failed to export into ${output}: it exists; choose another --output, or delete it`);
  const connection = await connect(options);
  try {
    const env = connection.storage_endpoint ? {STORAGE_EMULATOR_HOST: connection.storage_endpoint} : {};
    const folder = `gs://${connection.bucket}/${outputsPrefix(run).replace(/\/tpu_$/, '')}`;
    const args = ['gleaner_reader.export', folder, '--layer', String(options.layer), '--output', output];
    if (options.site !== undefined) args.push('--site', options.site);
    // The last line of a failure is the error of this command.
    const sayProgress = (line: string) => (/ rows$/.test(line) ? say(line) : undefined);
    const {code, stdout, stderr} = await runWorkerModule(
      [...args, '--dtype', options.dtype],
      env,
      sayProgress,
    );
    const last = stdout.at(-1);
    if (code !== 0 || last === undefined)
      throw new CliError(stderr.at(-1) ?? `Failed to export ${run}: the exporter ended with exit ${code}`);
    const exported = JSON.parse(last) as Exported;
    const {site, layer, dtype, rows, d_model, samples} = exported;
    const size = bytesText(rows * d_model * (BYTES[dtype] ?? 4));
    print<'run export'>(options.json, {...exported, output}, [
      `${counted(rows, 'row')} of ${site}.${layer} [${d_model}] as ${dtype}, ${counted(samples, 'sample')}, ${size}`,
      `${options.output}: ${Object.values(exported.files).join(', ')}`,
    ]);
  } finally {
    await connection.close();
  }
}
