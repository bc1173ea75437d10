/** Hostile web pages in a real browser: DNS rebinding and forged requests against the local cloud and the pages. */
import assert from 'node:assert/strict';
import {existsSync} from 'node:fs';
import {createServer, type Server} from 'node:http';
import {type Browser, chromium, type Page} from 'playwright-core';
import {running} from '../../client/connection/connect.ts';
import {type Dashboard, serveDashboard} from '../../dashboard/serve.ts';
import type {LocalCloud} from '../../emulator/cloud.ts';
import {Scratch, tokenUrl} from '../support/machine/a-cloud.ts';
import {someObjects} from '../support/machine/dashboard.ts';
import {listen, portOf} from '../support/machine/listen.ts';
import {aRun} from '../world/builders.ts';
import {aStore} from '../world/scenes/put-documents.ts';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** Names of the attacker. The browser resolves them to this machine, as after a rebinding. */
const ATTACKER = 'attacker.example';

describe('A hostile web page in a browser', () => {
  const scratch = new Scratch();
  let browser: Browser;
  let cloud: LocalCloud;
  let dashboard: Dashboard;
  let attacker: Server;
  let attackerPort: number;

  before(async function () {
    if (!existsSync(CHROMIUM)) {
      if (process.env.CI) throw new Error('chromium is missing, and CI needs it');
      console.log('  skipped: chromium is not installed');
      this.skip();
    }
    const args = ['--no-sandbox', `--host-resolver-rules=MAP ${ATTACKER} 127.0.0.1`];
    browser = await chromium.launch({executablePath: CHROMIUM, args});
    cloud = await scratch.cloud();
    const store = await aStore({'runs/secret': aRun({run: 'secret'})});
    const source = {store, objects: someObjects(), jobs: 'jobs', connection: running(cloud)};
    dashboard = await serveDashboard(source, 0, someObjects());
    attacker = createServer((_, response) => {
      response.writeHead(200, {'content-type': 'text/html'}).end('<title>attacker</title>');
    });
    await listen(attacker);
    attackerPort = portOf(attacker);
  });
  after(async () => {
    await browser?.close();
    await dashboard?.close();
    attacker?.close();
    await scratch.end();
  });

  /** Answers that a page reads: the text of each, or the word `blocked`. */
  const reads = (page: Page, urls: string[]) =>
    page.evaluate(
      async addresses =>
        Promise.all(
          addresses.map(url =>
            fetch(url, {credentials: 'include'})
              .then(async answer => `${answer.status} ${await answer.text()}`)
              .catch(() => 'blocked'),
          ),
        ),
      urls,
    );
  const origin = (host: string, port: number) => `http://${host}:${port}`;

  it('reads nothing under a name that is rebound to this machine', async () => {
    const page = await browser.newPage();
    for (const port of [cloud.port, dashboard.port]) {
      const own = origin(ATTACKER, port);
      // The page has the origin of the name, and reads every answer.
      const answer = await page.goto(`${own}/`);
      assert.equal(answer?.status(), 403);
      const paths = ['/storage/v1/b', '/runs/secret', '/documents', '/feed', '/computeMetadata/v1/'];
      for (const text of await reads(
        page,
        paths.map(path => own + path),
      ))
        assert.match(text, /^403 .*[Rr]efused host/, text);
    }
    await page.close();
  });

  it('changes and reads nothing of the local cloud from another origin', async () => {
    const upload = `${cloud.url}/upload/storage/v1/b/gleaner-local/o?uploadType=media&name=evil`;
    const publish = `${cloud.url}/v1/projects/gleaner-local/topics/control:publish`;
    const tick = `${cloud.url}/v1/projects/gleaner-local/locations/us-central1/jobs/gleaner-tick:run`;
    for (const host of [ATTACKER, '127.0.0.1']) {
      const page = await browser.newPage();
      await page.goto(origin(host, attackerPort));
      // Requests without a preflight: text in a form or a fetch.
      const sent = await page.evaluate(
        addresses =>
          Promise.all(
            addresses.map(url =>
              fetch(url, {method: 'POST', mode: 'no-cors', body: '{"messages": [{"data": "e30="}]}'})
                .then(answer => answer.type)
                .catch(() => 'blocked'),
            ),
          ),
        [upload, publish, tick],
      );
      assert.ok(
        sent.every(type => type === 'opaque' || type === 'blocked'),
        sent.join(),
      );
      assert.deepEqual(await reads(page, [`${cloud.url}/storage/v1/b`, upload]), ['blocked', 'blocked']);
      const form = page.waitForEvent('framenavigated');
      await page.setContent(
        `<form method="post" enctype="text/plain" action="${upload}"><input name="a"></form>`,
      );
      await page.evaluate('document.forms[0].submit()');
      await form;
      await page.waitForLoadState();
      assert.match(String(await page.evaluate('document.body.textContent')), /Refused a request/);
      await page.close();
    }
    const names = await fetch(`${tokenUrl(cloud)}/storage/v1/b/gleaner-local/o`);
    assert.equal(names.status, 200);
    assert.equal((await names.text()).includes('evil'), false);
  });

  it('reads no page of a person who is signed in, also from another port of this machine', async () => {
    const context = await browser.newContext();
    const own = await context.newPage();
    await own.goto(dashboard.url);
    assert.match(await own.content(), /secret/);
    for (const host of [ATTACKER, '127.0.0.1']) {
      const page = await context.newPage();
      await page.goto(origin(host, attackerPort));
      const at = (path: string) => new URL(path, dashboard.url).href;
      assert.deepEqual(await reads(page, [at('/runs/secret'), at('/documents')]), ['blocked', 'blocked']);
      await page.setContent(`<iframe src="${at('/runs/secret')}"></iframe><img src="${at('/')}">`);
      await page.waitForLoadState();
      const [, frame] = page.frames();
      assert.equal((await frame?.content())?.includes('secret') ?? false, false);
      await page.close();
    }
    await context.close();
  });
});
