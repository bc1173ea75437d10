/** Makes docs/pictures/page-*.png from a real run on a local cloud, with a preemption: `npm run picture:pages`. Needs Chromium. */
import {fileURLToPath} from 'node:url';
import {type Browser, chromium} from 'playwright-core';
import {SPEC, TestHome, texts} from '../test/support/machine/home.ts';

const PICTURES = fileURLToPath(new URL('../docs/pictures/', import.meta.url));
const STREAMS = 24;
const TPU = 'tpu-us-central1-a-0';
const SIZE = {width: 1180, height: 900};

const home = await TestHome.start(3);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
try {
  await home.drop(
    'datasets/my-run/run.json',
    JSON.stringify({...JSON.parse(SPEC), budget_usd: 5, shard_size_gb: 0.002}),
  );
  for (let stream = 0; stream < STREAMS; stream++)
    await home.drop(
      `datasets/my-run/stream_${String(stream).padStart(3, '0')}.jsonl`,
      texts(300, `s${stream}-`),
    );
  const page = await browser.newPage({viewport: SIZE, deviceScaleFactor: 1.5});
  await page.goto(home.ready.dashboard);
  await completed(6);
  await page.goto(new URL('/runs/my-run', home.ready.dashboard).href);
  await home.fault('preempt', TPU);
  await page
    .getByText(/is lost: it was preempted/)
    .first()
    .waitFor();
  await completed(14);
  await page.screenshot({path: `${PICTURES}page-run.png`});
  await takeDark(browser, '/fleet', 'page-fleet.png', 420);
  await home.runEnds('my-run');
} finally {
  await browser.close();
  await home.remove();
}

async function completed(streams: number): Promise<void> {
  await home.until(
    `${streams} completed streams`,
    async () => (await home.view('my-run'))?.run,
    run => (run?.streams_completed ?? 0) >= streams,
  );
}

async function takeDark(from: Browser, path: string, file: string, height: number): Promise<void> {
  const page = await from.newPage({viewport: {...SIZE, height}, deviceScaleFactor: 1.5, colorScheme: 'dark'});
  await page.goto(home.ready.dashboard);
  await page.goto(new URL(path, home.ready.dashboard).href);
  await page.screenshot({path: `${PICTURES}${file}`});
}
