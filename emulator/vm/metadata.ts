import {createHash, randomBytes} from 'node:crypto';
import {EventEmitter, once} from 'node:events';
import {accessTokenOf} from '../http/access-tokens.ts';
import {decodeSegment, type Reply, type Request, serve} from '../http/http.ts';
import type {Identities} from '../http/identity.ts';
import type {VmSpec} from './vm-spec.ts';

/** Value in the metadata. A list is one line per entry as text, and an array as JSON. */
type Leaf = string | string[] | ((query: URLSearchParams) => string);
type Tree = {[key: string]: Leaf | Tree};

function isLeaf(entry: Leaf | Tree): entry is Leaf {
  return typeof entry !== 'object' || Array.isArray(entry);
}

const flavor = {'metadata-flavor': 'Google', server: 'Metadata Server for VM'};

export type MetadataOptions = {
  project: string;
  /** Token of the cloud. The access token of the service account is derived from it. */
  token: string;
  identities: Identities;
  /** More accounts for which the server issues tokens. A VM of Google has only one. */
  accounts?: string[];
};

/**
 * Metadata server of one VM, on its own port. Like Google's server inside a VM, it issues tokens to every client. A secret path in
 * GCE_METADATA_HOST keeps other users of this machine out.
 */
export class MetadataServer {
  readonly #changes = new EventEmitter();
  readonly #tree: Tree;
  #isPreempted = false;
  #close: (() => Promise<void>) | undefined;
  readonly #prefix = `/${randomBytes(16).toString('hex')}`;
  /** HOST:PORT/PATH, the value of GCE_METADATA_HOST. */
  host = '';

  constructor(vm: VmSpec, cloud: MetadataOptions) {
    this.#changes.setMaxListeners(0);
    this.#tree = metadataTree(vm, cloud, () => (this.#isPreempted ? 'TRUE' : 'FALSE'));
  }

  async start(trouble: (error: unknown) => void): Promise<void> {
    const server = await serve(request => this.#answer(request), {port: 0, trouble});
    this.host = `127.0.0.1:${server.port}${this.#prefix}`;
    this.#close = server.close;
  }

  announcePreemption(): void {
    this.#isPreempted = true;
    this.#changes.emit('change');
  }

  announceMaintenance(): void {
    this.#instance['maintenance-event'] = 'TERMINATE_ON_HOST_MAINTENANCE';
    this.#instance['upcoming-maintenance'] = {
      'can-reschedule': 'FALSE',
      'maintenance-status': 'ONGOING',
      type: 'UNSCHEDULED',
    };
    this.#changes.emit('change');
  }

  get #instance(): Tree {
    return ((this.#tree.computeMetadata as Tree).v1 as Tree).instance as Tree;
  }

  async stop(): Promise<void> {
    await this.#close?.();
  }

  async #answer({method, path: sent, query, headers, signal}: Omit<Request, 'params'>): Promise<Reply> {
    if (!`${sent}/`.startsWith(`${this.#prefix}/`))
      return refusal(403, 'This is the metadata server of a VM');
    const path = sent.slice(this.#prefix.length);
    // Google's libraries read the root first, to detect a VM.
    if (path === '' || path === '/') return {headers: flavor, body: 'computeMetadata/\n'};
    if (headers['metadata-flavor'] !== 'Google' || headers['x-forwarded-for'] !== undefined) {
      return refusal(403, 'Missing Metadata-Flavor:Google header');
    }
    if (method !== 'GET' && method !== 'HEAD') return refusal(405, `${method} is not allowed`);
    const keys = path
      .split('/')
      .filter(key => key !== '')
      .map(decodeSegment);
    const first = this.#read(keys, path, query);
    if (query.get('wait_for_change') !== 'true' || first.status) return first;
    const last = query.get('last_etag') ?? first.headers?.etag;
    const timeout_s = Number(query.get('timeout_sec') ?? 0);
    const timeout = timeout_s > 0 ? AbortSignal.timeout(timeout_s * 1000) : undefined;
    const over = AbortSignal.any(timeout ? [signal, timeout] : [signal]);
    let now = first;
    while (now.headers?.etag === last && !over.aborted) {
      await once(this.#changes, 'change', {signal: over}).catch(() => {});
      now = this.#read(keys, path, query);
    }
    return now;
  }

  #read(keys: string[], path: string, query: URLSearchParams): Reply {
    let found: Leaf | Tree | undefined = this.#tree;
    for (const key of keys) {
      found = found && !isLeaf(found) && Object.hasOwn(found, key) ? found[key] : undefined;
    }
    if (found === undefined) return refusal(404, `There is no metadata at ${path}`);
    const isJson = query.get('alt') === 'json';
    if (isLeaf(found)) {
      const value = read(found, query);
      const text = typeof value === 'string' ? value : value.map(line => `${line}\n`).join('');
      if (text.startsWith('{')) return content(text, 'application/json');
      return isJson ? content(JSON.stringify(value), 'application/json') : content(text, 'application/text');
    }
    if (!path.endsWith('/') && query.get('recursive') !== 'true') {
      return {status: 301, headers: {...flavor, location: `${this.#prefix}${path}/`}, body: ''};
    }
    if (query.get('recursive') !== 'true') {
      const lines = Object.entries(found).map(([key, value]) =>
        typeof value === 'object' ? `${key}/` : key,
      );
      return content(lines.map(line => `${line}\n`).join(''), 'application/text');
    }
    return content(JSON.stringify(toJson(found, query, keys.at(-1) === 'attributes')), 'application/json');
  }
}

function read(leaf: Leaf, query: URLSearchParams): string | string[] {
  return typeof leaf === 'function' ? leaf(query) : leaf;
}

/** Tree as JSON. Keys of the server are in camel case; attributes of the user keep their names. */
function toJson(tree: Tree, query: URLSearchParams, isAttributes: boolean): object {
  const camel = (key: string) => key.replace(/-([a-z])/g, (_dash, letter: string) => letter.toUpperCase());
  return Object.fromEntries(
    Object.entries(tree)
      .filter(([key]) => isAttributes || (key !== 'token' && key !== 'identity'))
      .map(([key, value]) => [
        isAttributes ? key : camel(key),
        isLeaf(value) ? read(value, query) : toJson(value, query, key === 'attributes'),
      ]),
  );
}

function content(text: string, type: string): Reply {
  const etag = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return {headers: {...flavor, 'content-type': type, etag}, body: text};
}

function refusal(status: number, reason: string): Reply {
  return {status, headers: {...flavor, 'content-type': 'text/plain'}, body: `${reason}\n`};
}

function metadataTree(
  vm: VmSpec,
  {project, token, identities, accounts = []}: MetadataOptions,
  preempted: () => string,
): Tree {
  const {name, zone, id, machine_type, address, attributes, email} = vm;
  const accountOf = (email: string): Tree => ({
    aliases: ['default'],
    email,
    scopes: ['https://www.googleapis.com/auth/cloud-platform'],
    token: JSON.stringify({
      access_token: accessTokenOf(token, email),
      expires_in: 3599,
      token_type: 'Bearer',
    }),
    identity: query => {
      const more = query.get('format') === 'full' ? claims(vm, project) : undefined;
      return identities.token(email, query.get('audience') ?? '', more);
    },
  });
  const accountTrees = [email, ...accounts].map(each => [each, accountOf(each)]);
  return {
    computeMetadata: {
      v1: {
        project: {'project-id': project, 'numeric-project-id': '1', attributes: {}},
        instance: {
          id,
          name,
          hostname: `${name}.${zone}.c.${project}.internal`,
          zone: `projects/1/zones/${zone}`,
          description: name,
          'machine-type': `projects/1/machineTypes/${machine_type}`,
          preempted,
          'maintenance-event': 'NONE',
          attributes,
          'network-interfaces': {0: {ip: address}},
          'service-accounts': {default: accountOf(email), ...Object.fromEntries(accountTrees)},
        },
        universe: {'universe-domain': 'googleapis.com', universe_domain: 'googleapis.com'},
      },
    },
  };
}

/** Claims that describe the VM of an identity token. */
function claims({name, zone, id}: VmSpec, project: string) {
  const vm = {instance_id: id, instance_name: name, project_id: project, project_number: 1, zone};
  return {google: {compute_engine: vm}};
}
