/**
 * Messages of the client of Compute Engine for the bundle of the functions. The package describes every service of three versions in 12 MB, which
 * its client reads at the first call; the calls of `shared/google/instances.ts` need a hundredth of it.
 */
import {readFile} from 'node:fs/promises';
import type {Plugin} from 'esbuild';

/** The methods that `shared/google/instances.ts` calls, by service. */
const CALLED: Readonly<Record<string, readonly string[]>> = {
  Instances: ['AggregatedList', 'Delete', 'Get', 'Insert'],
  ZoneOperations: ['Get'],
};

type Field = {type?: string};
type Method = {requestType: string; responseType: string};
export type Entry = {
  nested?: Record<string, Entry>;
  fields?: Record<string, Field>;
  methods?: Record<string, Method>;
};

/** Reads the description of the package, and leaves out what the called methods do not need. */
export const computeProtos: Plugin = {
  name: 'compute-protos',
  setup: ({onLoad}) =>
    onLoad({filter: /@google-cloud[\\/]compute[\\/]build[\\/]protos[\\/]protos\.json$/}, async ({path}) => ({
      contents: JSON.stringify(neededOf(JSON.parse(await readFile(path, 'utf8')))),
      loader: 'json',
    })),
};

/** The description with the called methods alone, and the messages that they reach. */
export function neededOf(root: Entry): Entry {
  const google = root.nested?.google?.nested ?? {};
  const {compute, ...cloud} = google.cloud?.nested ?? {};
  const all = compute?.nested?.v1?.nested ?? {};
  const neededTypes: Record<string, Entry> = {};
  const open: string[] = [];
  for (const [service, names] of Object.entries(CALLED)) {
    const methods = Object.entries(all[service]?.methods ?? {}).filter(([name]) => names.includes(name));
    if (methods.length !== names.length)
      throw new Error(`Failed to bundle @google-cloud/compute: ${service} has unexpected methods`);
    neededTypes[service] = {...all[service], methods: Object.fromEntries(methods)};
    open.push(...methods.flatMap(([, {requestType, responseType}]) => [requestType, responseType]));
  }
  for (let type = open.pop(); type !== undefined; type = open.pop()) {
    const name = type.split('.').at(-1) ?? '';
    const message = all[name];
    if (!message || neededTypes[name]) continue;
    neededTypes[name] = message;
    open.push(...typesIn(message));
  }
  const v1 = {...compute?.nested?.v1, nested: neededTypes};
  const nested = {...cloud, compute: {...compute, nested: {v1}}};
  return {...root, nested: {google: {nested: {...google, cloud: {...google.cloud, nested}}}}};
}

function typesIn({fields = {}, nested = {}}: Entry): string[] {
  const own = Object.values(fields).flatMap(({type}) => type ?? []);
  return [...own, ...Object.values(nested).flatMap(typesIn)];
}
