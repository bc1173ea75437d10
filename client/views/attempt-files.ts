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

/** Artifacts of an attempt. `name`: path in the artifacts of its only host, or that path below a folder of its host. */
export async function listArtifacts(
  objects: Objects,
  id: string,
  epoch: number,
): Promise<{info: ObjectInfo; name: string}[]> {
  const folder = jobFolder(id, epoch);
  const alone = await objects.list(`${folder}artifacts/`);
  if (alone.length > 0)
    return alone.map(info => ({info, name: info.name.slice(`${folder}artifacts/`.length)}));
  return (await objects.list(`${folder}host_`)).flatMap(info => {
    const [, host, name] = /^(host_\d+)\/artifacts\/(.+)$/s.exec(info.name.slice(folder.length)) ?? [];
    return host && name ? [{info, name: `${host}/${name}`}] : [];
  });
}

/** Bytes of an artifact by its name in `listArtifacts`; undefined for an unknown one. */
export async function readArtifact(
  objects: Objects,
  id: string,
  epoch: number,
  name: string,
  max_bytes: number,
): Promise<Uint8Array | undefined> {
  const folder = jobFolder(id, epoch);
  const [, host, path] = /^(host_\d+)\/(.+)$/s.exec(name) ?? [];
  const ofHost = host ? [`${folder}${host}/artifacts/${path}`] : [];
  for (const object of [`${folder}artifacts/${name}`, ...ofHost]) {
    const bytes = await objects.read(object, {max_bytes});
    if (bytes) return bytes;
  }
  return undefined;
}
