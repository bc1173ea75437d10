/** Runs docs/tutorial.md as it is written, and makes docs/pictures/tutorial-*: `npm run picture:tutorial`. Needs Chromium and ten minutes. */
import {type ChildProcess, spawn} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {chromium} from 'playwright-core';
import {end, preparePlace, runPage} from '../test/support/docs/doc-runner.ts';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const PICTURES = `${ROOT}docs/pictures/`;
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM] = [720, 260, 48, 16, 36];

const dir = mkdtempSync(join(tmpdir(), 'gleaner-tutorial-'));
const background: ChildProcess[] = [];
try {
  const outputs = await runPage(await preparePlace(dir), 'docs/tutorial.md', background);
  console.log(outputs.join('\n'));
  writeFileSync(`${PICTURES}tutorial-loss.svg`, lossCurve(outputs.join('\n')));
  const feature = /^digit: feature (\d+)/m.exec(outputs.join('\n'))?.[1] ?? '';
  const args = ['dashboard', '--json', '--listen', '0', '--dir', join(dir, '.gleaner/local')];
  const pages = spawn(process.execPath, [`${ROOT}cli/main.ts`, ...args], {detached: true});
  background.push(pages);
  const line = await new Promise<string>(resolve =>
    createInterface({input: pages.stdout}).once('line', resolve),
  );
  await photograph(JSON.parse(line).url, {
    'tutorial-run': ['/runs/lm', 'samples as the model saw them'],
    'tutorial-feature': [`/runs/features/features/sae/2/${feature}`, 'Strongest examples'],
  });
} finally {
  for (const child of background.reverse()) await end(child);
  rmSync(dir, {recursive: true, force: true});
}

/** The losses that a job has printed, a line for each attempt. */
function lossCurve(printed: string): string {
  const [, ...attempts] = printed.split(/begins at step /);
  const curves = attempts.map(text =>
    [...text.matchAll(/^step (\d+) of \d+: loss ([\d.]+)$/gm)].map(([, step, loss]) => [
      Number(step),
      Number(loss),
    ]),
  );
  const [steps, losses] = [0, 1].map(axis => curves.flat().map(point => point[axis] ?? 0));
  const [last, most] = [Math.max(...(steps ?? [])), Math.ceil(Math.max(...(losses ?? [])))];
  const x = (step: number) => (LEFT + (step / last) * (WIDTH - LEFT - 16)).toFixed(1);
  const y = (loss: number) => (TOP + (1 - loss / most) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const colours = ['#9a6700', '#0969da'];
  const lines = curves.map((curve, attempt) => {
    const colour = colours[Math.min(attempt, 1)];
    const points = curve.map(([step = 0, loss = 0]) => `${x(step)},${y(loss)}`);
    const dots = points.map(at => `<circle r="3" fill="${colour}" cx="${at.replace(',', '" cy="')}"/>`);
    return `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${points.join(' ')}"/>${dots.join('')}`;
  });
  const back = Number.parseInt(attempts[1] ?? '0', 10);
  const marks = Array.from({length: most + 1}, (_, loss) => {
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
  address: string,
  pages: Record<string, [path: string, heading: string]>,
): Promise<void> {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  const browser = await chromium.launch({executablePath, args: ['--no-sandbox']});
  const page = await browser.newPage({viewport: {width: 1180, height: 900}, deviceScaleFactor: 1.5});
  await page.goto(address);
  for (const [name, [path, heading]] of Object.entries(pages)) {
    await page.goto(new URL(path, address).href);
    await page.getByRole('heading', {name: heading}).waitFor({timeout: 120_000});
    await page.screenshot({path: `${PICTURES}${name}.png`});
  }
  await browser.close();
}
