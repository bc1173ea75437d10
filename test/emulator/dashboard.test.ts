/** The pages of a deployment as Cloud Run starts them: the program in the settings of Terraform, the zip in the bucket, a header of IAP. */
import assert from 'node:assert/strict';
import {type ChildProcess, spawn} from 'node:child_process';
import {createHash} from 'node:crypto';
import {once} from 'node:events';
import {readFileSync} from 'node:fs';
import {createServer, get as httpGet, type Server} from 'node:http';
import type {AddressInfo} from 'node:net';
import {DIST} from '../../cli/build/artifacts.ts';
import {zipFunctions} from '../../cli/build/functions.ts';
import {keptZip} from '../../cli/build/kept-zip.ts';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {openObjects} from '../../shared/google/objects.ts';
import {aRun, ENVIRONMENT} from '../support/builders.ts';
import {AUDIENCE, FORGED_HEADERS, IAP_KEYS, iapHeader} from '../support/iap.ts';
import {ROOT} from '../support/process.ts';
import {putInCloud} from '../support/put-documents.ts';
import {until} from '../support/until.ts';
import {Scratch, tokenUrl} from './a-cloud.ts';

const TOKEN = 'ya29.of-the-pages';

/** Arguments of Node in `terraform/dashboard.tf`, with the file that the last one names. */
function argumentsOfNode(): string[] {
  const text = readFileSync(`${ROOT}terraform/dashboard.tf`, 'utf8');
  const [, type = '', flag = '', file = ''] =
    /args += \["([^"]+)", "([^"]+)", file\("\$\{path\.module\}\/([^"]+)"\)\]/.exec(text) ?? assert.fail();
  return [type, flag, readFileSync(`${ROOT}terraform/${file}`, 'utf8')];
}

/** The metadata server, the keys of IAP, and Cloud Storage for the account of the pages alone. */
function serveGoogle(cloud: LocalCloud): Server {
  return createServer(async ({url = '', headers}, response) => {
    const reply = (status: number, body: string | Uint8Array) => response.writeHead(status).end(body);
    if (url === '/keys')
      return response.setHeader('content-type', 'application/json').end(JSON.stringify(IAP_KEYS));
    if (url === '/computeMetadata/v1/instance/service-accounts/default/token')
      return headers['metadata-flavor'] === 'Google'
        ? reply(200, JSON.stringify({access_token: TOKEN, expires_in: 3599, token_type: 'Bearer'}))
        : reply(403, 'the header Metadata-Flavor is missing');
    if (headers.authorization !== `Bearer ${TOKEN}`) return reply(401, 'Invalid Credentials');
    const answer = await fetch(`${tokenUrl(cloud)}${url}`);
    return reply(answer.status, new Uint8Array(await answer.arrayBuffer()));
  });
}

async function ended(child: ChildProcess): Promise<{status: number; stderr: string}> {
  let stderr = '';
  child.stderr?.on('data', text => {
    stderr += text;
  });
  const [status] = await once(child, 'close');
  return {status, stderr};
}

describe('the pages behind IAP', () => {
  const scratch = new Scratch();
  let google: Server;
  let pages: ChildProcess;
  let output = '';
  let url: string;
  let env: Record<string, string>;
  let store: (name: string, bytes: Uint8Array) => Promise<unknown>;

  before(async () => {
    const cloud = await scratch.cloud({storage_only: true});
    await putInCloud(cloud, {'runs/my-run': aRun({reason: 'it waits for a TPU'})});
    const zip = keptZip(DIST, ROOT) ?? (await zipFunctions()).zip;
    const sha256 = createHash('sha256').update(zip).digest('hex');
    const {project, bucket} = cloud;
    const objects = openObjects({project, bucket, endpoint: cloud.url, token: cloud.token});
    store = (name, bytes) => objects.create(name, bytes);
    await store(`functions/${sha256}.zip`, zip);
    google = serveGoogle(cloud).listen(0, '127.0.0.1');
    const free = createServer().listen(0, '127.0.0.1');
    await Promise.all([once(google, 'listening'), once(free, 'listening')]);
    const [{port: at}, {port}] = [google.address() as AddressInfo, free.address() as AddressInfo];
    await new Promise(resolve => free.close(resolve));
    url = `http://127.0.0.1:${port}`;
    const {PATH = ''} = process.env;
    const {GLEANER_TICKET_KEY: _, ...settings} = ENVIRONMENT;
    env = {
      ...{...settings, PATH, PORT: String(port), GCE_METADATA_HOST: `127.0.0.1:${at}`},
      ...{GLEANER_PROJECT: project, GLEANER_BUCKET: bucket, GLEANER_STORE: `sqlite:${cloud.store_file}`},
      ...{GLEANER_STORAGE_ENDPOINT: `http://127.0.0.1:${at}`, GLEANER_LOCAL_TOKEN: TOKEN},
      ...{GLEANER_FUNCTIONS: sha256, GLEANER_IAP_AUDIENCE: AUDIENCE},
      GLEANER_IAP_KEYS: `http://127.0.0.1:${at}/keys`,
    };
    pages = spawn(process.execPath, argumentsOfNode(), {cwd: scratch.dir(), env});
    for (const stream of [pages.stdout, pages.stderr])
      stream?.on('data', text => {
        output += text;
      });
    const isServing = () => fetch(url).then(() => true);
    await until('the pages listen', async () => pages.exitCode !== null || (await isServing()));
    assert.equal(pages.exitCode, null, output);
  });
  after(async () => {
    pages?.kill();
    google?.closeAllConnections();
    google?.close();
    await scratch.end();
  });

  const get = (path: string, headers: Record<string, string>) => fetch(`${url}${path}`, {headers});
  const signed = () => ({'x-goog-iap-jwt-assertion': iapHeader()});

  it('show a reader the state of the deployment', async () => {
    const page = await get('/', signed());
    assert.equal(page.status, 200, output);
    assert.match(await page.text(), /it waits for a TPU/);
    for (const file of ['style.css', 'live.js', 'idiomorph.js', 'icon.svg'])
      assert.equal((await get(`/static/${file}`, {})).status, 200, file);
  });

  it('start with no other bytes than those that were deployed', async () => {
    const other = 'd'.repeat(64);
    await store(`functions/${other}.zip`, Buffer.from('other bytes'));
    const changed = {env: {...env, GLEANER_FUNCTIONS: other}, cwd: scratch.dir()};
    const {status, stderr} = await ended(spawn(process.execPath, argumentsOfNode(), changed));
    assert.equal(status, 1);
    assert.match(stderr, /functions\/d{64}\.zip has other bytes/);
  });

  it('are live', async () => {
    const stream = await get('/live/', signed());
    assert.equal(stream.headers.get('content-type'), 'text/event-stream');
    const reader = stream.body?.getReader() ?? assert.fail();
    const {value} = await reader.read();
    assert.match(Buffer.from(value ?? []).toString(), /^event: sections/);
    await reader.cancel();
  });

  it('refuse a request that IAP has not signed, with the reason in the log', async () => {
    const {header} = FORGED_HEADERS.find(({name}) => name === 'for another service') ?? assert.fail();
    for (const path of ['/', '/live/', '/runs/my-run', '/jobs/x/artifacts/y']) {
      assert.equal((await get(path, {})).status, 401, path);
      assert.equal((await get(path, {'x-goog-iap-jwt-assertion': header()})).status, 401, path);
    }
    assert.match(output, /"severity":"WARNING".*team-b-dashboard.*GLEANER_IAP_AUDIENCE is /);
  });

  it('open by a link of a web page, and answer no other request of one', async () => {
    // `fetch` sets these headers itself.
    const statusOf = (path: string, mode: string) =>
      new Promise((resolve, reject) => {
        const headers = {...signed(), 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': mode};
        httpGet(`${url}${path}`, {headers}, response => resolve(response.destroy().statusCode)).on(
          'error',
          reject,
        );
      });
    assert.equal(await statusOf('/', 'navigate'), 200);
    assert.equal(await statusOf('/live/', 'no-cors'), 403);
  });
});
