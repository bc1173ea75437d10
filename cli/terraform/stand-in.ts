/**
 * A stand-in for the provider of `terraform/`, for a machine that cannot install it. The stand-in serves its schema over Terraform's
 * plugin protocol: enough for `terraform validate`, and for `terraform test` with mocked resources.
 * A real plan needs the real provider.
 */

import {readFileSync} from 'node:fs';
import {mkdtemp, rm} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {
  type GrpcObject,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServiceClientConstructor,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import {loadSync} from '@grpc/proto-loader';

const NESTING = {single: 1, list: 2, set: 3, map: 4, group: 5} as const;

/** As `terraform providers schema -json` writes a block and a provider. */
export type Block = {
  attributes?: Record<string, {type: unknown; [flag: string]: unknown}>;
  block_types?: Record<
    string,
    {nesting_mode: keyof typeof NESTING; block: Block; min_items?: number; max_items?: number}
  >;
};
export type Kind = {version?: number; block: Block};
type Provider = {
  provider?: Kind;
  resource_schemas?: Record<string, Kind>;
  data_source_schemas?: Record<string, Kind>;
};
/** Providers by short address, such as `hashicorp/google`. */
export type Schemas = Record<string, Provider>;

/** Why a provider refuses a configuration, which has the encoding of the plugin protocol. */
export type Refusals = (block: Block, config: Uint8Array) => string[];

/** Starts a stand-in for each provider, which refuses what `refusals` names. `reattach` is the value of `TF_REATTACH_PROVIDERS` until `close`. */
export async function startStandIn(
  refusals: Refusals,
): Promise<{reattach: string; close: () => Promise<void>}> {
  const schemas = JSON.parse(readFileSync(new URL('schemas.json', import.meta.url), 'utf8')) as Schemas;
  const folder = await mkdtemp(join(tmpdir(), 'gleaner-terraform-'));
  const served = await Promise.all(
    Object.entries(schemas).map(async ([address, provider], index) => {
      const socket = join(folder, `${index}.sock`);
      const server = await serve(answers(provider, refusals), socket);
      return {address, socket, server};
    }),
  );
  const plugins = served.map(({address, socket}) => [address, reattachTo(socket)]);
  return {
    reattach: JSON.stringify(Object.fromEntries(plugins)),
    close: async () => {
      for (const {server} of served) server.forceShutdown();
      await rm(folder, {recursive: true, force: true});
    },
  };
}

function reattachTo(socket: string) {
  // `Test` keeps Terraform from ending this process.
  const address = {Network: 'unix', String: socket};
  return {Protocol: 'grpc', ProtocolVersion: 6, Pid: process.pid, Test: true, Addr: address};
}

async function serve(provider: UntypedServiceImplementation, socket: string): Promise<Server> {
  const server = new Server({'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1});
  server.addService(pluginService(), provider);
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), error =>
      error ? reject(error) : resolve(),
    ),
  );
  return server;
}

function pluginService() {
  const proto = fileURLToPath(new URL('tfplugin6.proto', import.meta.url));
  const loaded = loadPackageDefinition(loadSync(proto, {keepCase: true, longs: Number, defaults: true}));
  return ((loaded.tfplugin6 as GrpcObject).Provider as ServiceClientConstructor).service;
}

type Answer = (call: {request: unknown}, reply: (error: Error | null, value: object) => void) => void;
type Validated = {type_name: string; config: {msgpack: Uint8Array}};

function answers(provider: Provider, refusals: Refusals): UntypedServiceImplementation {
  const schema = {
    provider: schemaOf(provider.provider ?? {block: {}}),
    resource_schemas: schemasOf(provider.resource_schemas),
    data_source_schemas: schemasOf(provider.data_source_schemas),
    server_capabilities: {get_provider_schema_optional: false},
  };
  const always =
    (value: object): Answer =>
    (_call, reply) =>
      reply(null, value);
  return {
    GetProviderSchema: always(schema),
    ValidateProviderConfig: always({}),
    ValidateResourceConfig: validated(provider.resource_schemas, refusals),
    ValidateDataResourceConfig: validated(provider.data_source_schemas, refusals),
    ConfigureProvider: always({}),
    StopProvider: always({}),
  };
}

function validated(kinds: Record<string, Kind> = {}, refusals: Refusals): Answer {
  return ({request}, reply) => {
    const {type_name, config} = request as Validated;
    const found = refusals(kinds[type_name]?.block ?? {}, config.msgpack);
    const diagnostics = found.map(detail => ({severity: 'ERROR', summary: `Invalid ${type_name}`, detail}));
    reply(null, {diagnostics});
  };
}

function schemasOf(kinds: Record<string, Kind> = {}) {
  return Object.fromEntries(Object.entries(kinds).map(([kind, found]) => [kind, schemaOf(found)]));
}

function schemaOf({version = 0, block}: Kind) {
  return {version, block: blockOf(block)};
}

function blockOf({attributes = {}, block_types = {}}: Block): object {
  return {
    attributes: Object.entries(attributes).map(([name, {type, ...flags}]) => {
      return {name, ...flags, type: Buffer.from(JSON.stringify(type))};
    }),
    block_types: Object.entries(block_types).map(([type_name, {nesting_mode, block, ...items}]) => {
      return {type_name, block: blockOf(block), nesting: NESTING[nesting_mode], ...items};
    }),
  };
}
