import {existsSync} from 'node:fs';
import {resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {withCloud} from '../../client/cloud/cloud.ts';
import {unknownRun} from '../../client/cloud/fleet.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {storageVariables} from '../../client/connection/connection.ts';
import type {Answers} from '../../client/json/index.ts';
import {runWorkerModule, workerPython} from '../../client/python/python.ts';
import {CliError} from '../../client/text/errors.ts';
import {bytesText, counted} from '../../client/text/format.ts';
import {print, say} from '../../client/text/output.ts';
import {outputsPrefix, paths} from '../../shared/domain/names.ts';

type ExportOptions = CloudOptions & {
  to: string;
  layer?: number;
  layers?: number[];
  ids?: number[];
  site?: string;
  dtype: string;
  context_size: number;
  window: number;
  tokenizer?: string;
  repo?: string;
  public?: boolean;
  output?: string;
};

type Exported = Answers['run export'];

const BYTES: Record<string, number> = {float32: 4, float16: 2, bfloat16: 2};

/** Packages of the worker, and those that write Arrow files. */
const ARROW_LOCK = fileURLToPath(new URL('export-requirements.lock', import.meta.url));
const ARROW_EXPORTS = ['saelens', 'speculators'];

/** Writes layers of a run to files of another project. An export that was interrupted goes on. */
export async function exportRun(run: string, options: ExportOptions): Promise<void> {
  const output = folderOf(options);
  await withCloud(options, async ({connection, store, objects}) => {
    const [shard] = await objects.list(outputsPrefix(run), {limit: 1});
    if (!shard && !(await store.get(paths.run(run)))) throw await unknownRun(store, run);
    if (!shard) throw new CliError(`Run ${run} has no shard yet: \`gleaner status ${run}\` shows its course`);
    const env = storageVariables(connection);
    const folder = `gs://${connection.bucket}/${outputsPrefix(run).replace(/\/tpu_$/, '')}`;
    const args = ['gleaner_reader.export', folder, ...exporterOptions(options)];
    if (output !== undefined) args.push('--output', output);
    // The last line of a failure is the error of this command.
    const sayProgress = (line: string) => (/^note: | (rows|bytes)$/.test(line) ? say(line) : undefined);
    const lock = ARROW_EXPORTS.includes(options.to) ? ARROW_LOCK : undefined;
    await workerPython(say, lock);
    const {code, stdout, stderr} = await runWorkerModule(args, env, sayProgress, lock);
    const last = stdout.at(-1);
    if (code !== 0 || last === undefined)
      throw new CliError(stderr.at(-1) ?? `Failed to export ${run}: the exporter ended with exit ${code}`);
    const exported = (output ? {...JSON.parse(last), output} : JSON.parse(last)) as Exported;
    print<'run export'>(options.json, exported, linesOf(exported, options.output ?? ''));
  });
}

/** The folder to write; undefined where a dataset of the hub takes the files. */
function folderOf({to, repo, output}: ExportOptions): string | undefined {
  if (to === 'hub') {
    if (repo === undefined || output !== undefined)
      throw new CliError('--to hub takes --repo, such as me/my-run, and no --output');
    return undefined;
  }
  if (output === undefined) throw new CliError(`--to ${to} writes a folder: pass --output`);
  const folder = resolve(output);
  if (existsSync(folder))
    throw new CliError(`Failed to export into ${folder}: it exists; choose another --output, or delete it`);
  return folder;
}

function exporterOptions(chosen: ExportOptions): string[] {
  const {to, layer, layers, ids, site, dtype, context_size, window, tokenizer} = chosen;
  if (to === 'hub') return ['--to', to, '--repo', chosen.repo ?? '', ...(chosen.public ? ['--public'] : [])];
  if (to === 'speculators' ? layer !== undefined : layers !== undefined)
    throw new CliError(
      to === 'speculators' ? '--to speculators takes --layers' : `--to ${to} takes one layer: --layer`,
    );
  if (to !== 'speculators' && layer === undefined)
    throw new CliError(`--to ${to} exports one layer: pass --layer`);
  const given = {to, layer, site, dtype, 'context-size': context_size, window, tokenizer};
  const options = Object.entries(given).flatMap(([name, value]) =>
    value === undefined ? [] : [`--${name}`, String(value)],
  );
  const lists = Object.entries({layers, ids}).flatMap(([name, all]) =>
    all ? [`--${name}`, ...all.map(String)] : [],
  );
  return [...options, ...lists];
}

function linesOf(exported: Exported, output: string): string[] {
  if (exported.to === 'saelens') {
    const {hook_name, context_size, d_in, contexts, rows_left_out} = exported;
    const left = rows_left_out > 0 ? `; ${counted(rows_left_out, 'last row')} left out` : '';
    return [
      `${counted(contexts, 'context')} of ${context_size} rows of ${hook_name} [${d_in}]${left}`,
      `${output}: cached_activations_path of SAELens`,
    ];
  }
  if (exported.to === 'hub') {
    const {url, files, size_bytes, uploaded, digest} = exported;
    const visible = exported.private ? 'private' : 'public';
    return [
      `${counted(files, 'file')}, ${bytesText(size_bytes)}, ${uploaded} of them new: digest ${digest}`,
      `${url} (${visible})`,
    ];
  }
  if (exported.to === 'speculators') {
    const {target_layer_ids, last_layer_id, dtype, d_model, samples, tokens} = exported;
    return [
      `${counted(samples, 'sample')}, ${counted(tokens, 'token')} of [${target_layer_ids.length + 1}, ${d_model}] as ${dtype}`,
      `${output}: --data-path of speculators, with --target-layer-ids ${target_layer_ids.join(' ')}; layer ${last_layer_id} is taken as the last of the model`,
    ];
  }
  if ('features' in exported) {
    const {features, name, layer, rows, left_out} = exported;
    const left = left_out > 0 ? `; ${counted(left_out, 'row')} left out` : '';
    const use = exported.to === 'delphi' ? '/latents: raw_dir of delphi' : ': ID.json of each feature';
    return [
      `${counted(features, 'feature')} of ${name}.${layer}, ${counted(rows, 'row')}${left}`,
      output + use,
    ];
  }
  const {to, site, layer, dtype, rows, d_model, samples, files} = exported;
  const size = bytesText(rows * d_model * (BYTES[dtype] ?? 4));
  const use =
    to === 'dictionary_learning' ? '; open_dictionary_learning of gleaner_reader.export reads them' : '';
  return [
    `${counted(rows, 'row')} of ${site}.${layer} [${d_model}] as ${dtype}, ${counted(samples, 'sample')}, ${size}`,
    `${output}: ${Object.values(files).join(', ')}${use}`,
  ];
}
