/** Objects of an attempt. The hosts of an attempt on several have a folder each: `host_0/`, `host_1/` and so on. */
import {jobFolder} from '../../shared/domain/names.ts';
import {FIRST_HOST} from '../../shared/domain/worker/hosts.ts';
import type {ObjectInfo, Objects} from '../../shared/ports/ports.ts';

/** Folder of the output of a host; undefined until the host has stored some. */
export async function findOutput(
  objects: Objects,
  id: string,
  epoch: number,
  host = FIRST_HOST,
): Promise<string | undefined> {
  const folder = jobFolder(id, epoch);
  const alone = host === FIRST_HOST ? [`${folder}output/`] : [];
  for (const at of [...alone, `${folder}host_${host}/output/`])
    if ((await objects.list(at, {limit: 1})).length > 0) return at;
  return undefined;
}

/** Numbers of the hosts that have a folder in an attempt on several. */
export async function listHosts(objects: Objects, id: string, epoch: number): Promise<number[]> {
  const start = `${jobFolder(id, epoch)}host_`;
  const found = await objects.list(start);
  const hosts = found.map(({name}) => Number.parseInt(name.slice(start.length), 10));
  return [...new Set(hosts)].filter(Number.isInteger).sort((one, other) => one - other);
}

/**
 * Artifacts of an attempt. `name`: path in the artifacts of its only host, or that path below a folder of its host. A file that changed while
 * the job ran has several versions, of which the newest counts.
 */
export async function listArtifacts(
  objects: Objects,
  id: string,
  epoch: number,
): Promise<{info: ObjectInfo; name: string}[]> {
  const folder = jobFolder(id, epoch);
  const alone = await objects.list(`${folder}artifacts`);
  const all = alone.length > 0 ? alone : await objects.list(`${folder}host_`);
  const newest = new Map<string, {info: ObjectInfo; name: string; version: number}>();
  for (const info of all) {
    const [, host = '', number = '1', path] =
      /^(host_\d+\/)?artifacts(?:_(\d+))?\/(.+)$/s.exec(info.name.slice(folder.length)) ?? [];
    const [name, version] = [`${host}${path}`, Number(number)];
    if (path && version > (newest.get(name)?.version ?? 0)) newest.set(name, {info, name, version});
  }
  return [...newest.values()].map(({info, name}) => ({info, name}));
}

/** Bytes of an artifact by its name in `listArtifacts`; undefined for an unknown one. */
export async function readArtifact(
  objects: Objects,
  id: string,
  epoch: number,
  name: string,
  max_bytes: number,
): Promise<Uint8Array | undefined> {
  const found = (await listArtifacts(objects, id, epoch)).find(each => each.name === name);
  return found && objects.read(found.info.name, {max_bytes});
}
