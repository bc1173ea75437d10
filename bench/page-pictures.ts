/** Runs docs/tutorial.md as it is written, and makes docs/pictures/{page,tutorial}-*: `npm run picture:pages`. Needs Chromium and ten minutes. */
import {type ChildProcess, spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {type Browser, chromium} from 'playwright-core';
import {end, preparePlace, runPage} from '../test/support/docs/doc-runner.ts';
import {GLEANER, ROOT} from '../test/support/machine/process.ts';

const PICTURES = `${ROOT}docs/pictures/`;
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [720, 260, 48, 16, 36];
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';

const dir = mkdtempSync(join(tmpdir(), 'gleaner-tutorial-'));
const background: ChildProcess[] = [];
const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
try {
  const printed = (await runPage(await preparePlace(dir), 'docs/tutorial.md', background)).join('\n');
  console.log(printed);
  writeFileSync(`${PICTURES}tutorial-loss.svg`, lossCurve(printed));
  const args = [GLEANER, 'dashboard', '--json', '--listen', '0', '--dir', join(dir, '.gleaner/local')];
  const pages = spawn(process.execPath, args, {detached: true});
  background.push(pages);
  const line = await new Promise<string>(resolve =>
    createInterface({input: pages.stdout}).once('line', resolve),
  );
  const feature = `/runs/features/features/sae/2/${/^digit: feature (\d+)/m.exec(printed)?.[1]}`;
  await photograph(browser, JSON.parse(line).url, {
    'page-run': ['/runs/lm', 'samples as the model saw them'],
    'page-feature': [feature, 'Strongest examples'],
  });
} finally {
  await browser.close();
  for (const child of background.reverse()) await end(child);
  rmSync(dir, {recursive: true, force: true});
}

/** The losses that a job has printed, a line for each attempt. */
function lossCurve(printed: string): string {
  const [, ...attempts] = printed.split(/begins at step /);
  const curves = attempts.map(text =>
    [...text.matchAll(/^step (\d+) of \d+: loss ([\d.]+)$/gm)].map(found => found.slice(1).map(Number)),
  );
  const [last, most] = [0, 1].map(axis => Math.ceil(Math.max(...curves.flat().map(at => at[axis] ?? 0))));
  const x = (step = 0) => (LEFT + (step / (last ?? 1)) * (WIDTH - LEFT - 16)).toFixed(1);
  const y = (loss = 0) => (TOP + (1 - loss / (most ?? 1)) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const lines = curves.map((curve, attempt) => {
    const style = `stroke="${attempt === 0 ? '#9a6700' : '#0969da'}" stroke-linecap="round"`;
    const path = curve.map(([step, loss]) => `${x(step)},${y(loss)}`).join('L');
    const dots = path.replaceAll(/[^L]+/g, at => `M${at}h0`).replaceAll('L', '');
    return `<path fill="none" stroke-width="2" ${style} d="M${path}"/><path stroke-width="6" ${style} d="${dots}"/>`;
  });
  const back = Number.parseInt(attempts[1] ?? '0', 10);
  const marks = Array.from({length: (most ?? 0) + 1}, (_, loss) => {
    const line = `<path stroke="#d0d7de" d="M${LEFT} ${y(loss)}H${WIDTH - 16}"/>`;
    return `${line}<text x="${LEFT - 8}" y="${y(loss)}" dy="4" text-anchor="end">${loss}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui,sans-serif" font-size="12" fill="#1f2328" role="img" aria-label="The loss of the model by step, through a preemption">
<rect width="100%" height="100%" rx="6" fill="#fff"/>
${marks.join('\n')}
<path stroke="#57606a" stroke-dasharray="4 4" d="M${x(back)} ${TOP}V${HEIGHT - BOTTOM}"/>
<text x="${x(back)}" y="${TOP + 12}" dx="6">preempted; the next attempt begins at step ${back}</text>
${lines.join('\n')}
<text x="${LEFT}" y="${HEIGHT - 10}">loss (nats for each token) by step, 0 to ${last}</text>
</svg>
`;
}

/** Waits for the heading of each page: the one of a feature reads the run first. */
async function photograph(
  from: Browser,
  address: string,
  pages: Record<string, [path: string, heading: string]>,
): Promise<void> {
  const page = await from.newPage({viewport: {width: 1180, height: 900}, deviceScaleFactor: 1.5});
  await page.goto(address);
  for (const [name, [path, heading]] of Object.entries(pages)) {
    await page.goto(new URL(path, address).href);
    await page.getByRole('heading', {name: heading}).waitFor({timeout: 120_000});
    await page.screenshot({path: `${PICTURES}${name}.png`});
  }
}
