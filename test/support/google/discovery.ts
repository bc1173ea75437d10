/**
 * Google's REST APIs by their discovery documents, of the package google-api-python-client on PyPI. The documents come once a machine into the
 * cache, because they are too large for a repository.
 */
import {globSync, readFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {workerPython} from '../../../client/python/python.ts';
import {ROOT} from '../machine/process.ts';

/** Services, each with the versions of its API that the project calls. */
const VERSIONS: Record<string, readonly string[]> = {
  ...{artifactregistry: ['v1'], cloudfunctions: ['v2'], cloudresourcemanager: ['v1'], cloudscheduler: ['v1']},
  ...{compute: ['v1'], eventarc: ['v1'], firestore: ['v1'], iam: ['v1'], iamcredentials: ['v1']},
  ...{orgpolicy: ['v2'], pubsub: ['v1'], secretmanager: ['v1'], serviceusage: ['v1', 'v1beta1']},
  ...{storage: ['v1'], tpu: ['v2']},
};

/** The package has no document of Cloud Quotas. From https://docs.cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos */
const QUOTAS: Document = {
  methods: {
    get: {
      id: 'cloudquotas.projects.locations.services.quotaInfos.get',
      httpMethod: 'GET',
      path: 'v1/projects/{project}/locations/{location}/services/{service}/quotaInfos/{quota}',
      response: {$ref: 'QuotaInfo'},
    },
  },
  schemas: {
    QuotaInfo: {
      type: 'object',
      properties: {
        name: {type: 'string'},
        quotaId: {type: 'string'},
        dimensionsInfos: {type: 'array', items: {$ref: 'DimensionsInfo'}},
      },
    },
    DimensionsInfo: {
      type: 'object',
      properties: {
        dimensions: {type: 'object', additionalProperties: {type: 'string'}},
        applicableLocations: {type: 'array', items: {type: 'string'}},
        details: {type: 'object', properties: {value: {type: 'string', format: 'int64'}}},
      },
    },
  },
};

type Schema = {
  $ref?: string;
  type?: string;
  format?: string;
  description?: string;
  enum?: string[];
  pattern?: string;
  readOnly?: boolean;
  required?: boolean;
  repeated?: boolean;
  location?: string;
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema;
};

type RestMethod = {
  id: string;
  httpMethod: string;
  path: string;
  flatPath?: string;
  parameters?: Record<string, Schema>;
  request?: Schema;
  response?: Schema;
};

type Resource = {methods?: Record<string, RestMethod>; resources?: Record<string, Resource>};
type Document = Resource & {
  servicePath?: string;
  parameters?: Record<string, Schema>;
  schemas: Record<string, Schema>;
};

/** `service`: the first part of its host. */
export type Method = RestMethod & {service: string; document: Document; pattern: RegExp};

let methods: Method[] | undefined;

/** Every method of the APIs; downloads the documents if the cache lacks them. */
export async function openMethods(): Promise<readonly Method[]> {
  if (methods) return methods;
  const folder = await documentsFolder();
  const read = (name: string) => JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8')) as Document;
  methods = [
    ...Object.entries(VERSIONS).flatMap(([service, versions]) =>
      versions.flatMap(version => methodsOf(service, read(`${service}.${version}`))),
    ),
    ...methodsOf('cloudquotas', QUOTAS),
  ];
  return methods;
}

async function documentsFolder(): Promise<string> {
  const lock = `${ROOT}test/support/google/discovery.lock`;
  const python = await workerPython(line => console.error(line), lock);
  const [folder = ''] = globSync(
    join(dirname(python), '../lib/python*/site-packages/googleapiclient/discovery_cache/documents'),
  );
  return folder;
}

function methodsOf(service: string, document: Document): Method[] {
  const {servicePath = ''} = document;
  const within = (resource: Resource): Method[] => [
    ...Object.values(resource.methods ?? {}).map(method => {
      const template = `/${servicePath}${method.flatPath ?? method.path}`;
      return {...method, service, document, pattern: patternOf(template)};
    }),
    ...Object.values(resource.resources ?? {}).flatMap(within),
  ];
  return within(document);
}

/** `{+name}` matches slashes too. */
function patternOf(template: string): RegExp {
  const pattern = template.replace(/\{(\+?)\w+\}|[.*?^$()|[\]\\]/g, (match, plus?: string) =>
    plus === undefined ? `\\${match}` : plus ? '(.+)' : '([^/:]+)',
  );
  return new RegExp(`^${pattern}$`);
}

/** What Google refuses in a request; empty for a right one. */
export function requestProblems(method: Method, query: URLSearchParams, body: unknown): string[] {
  const known: Record<string, Schema> = {...method.document.parameters, ...method.parameters};
  const missing = Object.entries(known).filter(
    ([name, {required, location}]) => required && location === 'query' && !query.has(name),
  );
  return [
    ...[...query].flatMap(([name, value]) => queryProblems(known, name, value)),
    ...missing.map(([name]) => `Required parameter: ${name}`),
    ...bodyProblems(method, body),
  ];
}

function queryProblems(known: Record<string, Schema>, name: string, value: string): string[] {
  // Google's clients name the form of the answer.
  if (name === '$alt') return [];
  const schema = known[name];
  if (schema?.location !== 'query')
    return [`Invalid JSON payload received. Unknown name "${name}": Cannot bind query parameter.`];
  return schema.enum && !schema.enum.includes(value) ? [`Invalid value at '${name}', "${value}"`] : [];
}

function bodyProblems({request, document}: Method, body: unknown): string[] {
  const isEmpty = body === undefined || Object.keys(body as object).length === 0;
  if (!request) return isEmpty ? [] : ['The request has a body, and the method takes none'];
  return problemsOf({document, side: 'request'}, request, body ?? {}, '');
}

/** What an answer of a stand-in has that Google's could not have. */
export function responseProblems({response, document}: Method, body: unknown): string[] {
  if (!response) return Object.keys(body as object).length === 0 ? [] : ['the method answers nothing'];
  return problemsOf({document, side: 'response'}, response, body, '');
}

type Side = {document: Document; side: 'request' | 'response'};

function problemsOf(at: Side, schema: Schema, value: unknown, path: string): string[] {
  if (schema.$ref) return problemsOf(at, at.document.schemas[schema.$ref] ?? {}, value, path);
  switch (schema.type) {
    case 'object':
      return objectProblems(at, schema, value, path);
    case 'array':
      if (!Array.isArray(value)) return [`Invalid value at '${path}': it is not a list`];
      return value.flatMap((each, i) => problemsOf(at, schema.items ?? {}, each, `${path}[${i}]`));
    case 'any':
      return [];
    default:
      return isValue(schema, value) ? [] : [`Invalid value at '${path}', ${JSON.stringify(value)}`];
  }
}

function objectProblems(at: Side, schema: Schema, value: unknown, path: string): string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return [`Invalid value at '${path}': it is not an object`];
  const {properties = {}, additionalProperties} = schema;
  const isRequest = at.side === 'request';
  const missing = Object.entries(properties).filter(
    ([name, {description = ''}]) => isRequest && description.startsWith('Required.') && !(name in value),
  );
  return [
    ...Object.entries(value).flatMap(([name, each]) => {
      const field = path ? `${path}.${name}` : name;
      const of = properties[name] ?? additionalProperties;
      if (!of)
        return [`Invalid JSON payload received. Unknown name "${name}" at '${path}': Cannot find field.`];
      if (isRequest && of.readOnly) return [`${field} is for output only`];
      return problemsOf(at, of, each, field);
    }),
    ...missing.map(([name]) => `${path ? `${path}.` : ''}${name} is required`),
  ];
}

function isValue({type, format, enum: words, pattern}: Schema, value: unknown): boolean {
  switch (type) {
    case 'boolean':
      return typeof value === 'boolean';
    case 'integer':
      return Number.isInteger(value);
    case 'number':
      return typeof value === 'number';
    default:
      if (format === 'int64' || format === 'uint64') return /^-?\d+$/.test(String(value));
      if (typeof value !== 'string') return false;
      return (!words || words.includes(value)) && (!pattern || new RegExp(pattern).test(value));
  }
}
