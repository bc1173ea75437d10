/** `gleaner dashboard`: the pages of a cloud, on this machine alone. */
import {spawn} from 'node:child_process';
import {type Cloud, withCloud} from '../../client/cloud/cloud.ts';
import type {CloudOptions} from '../../client/connection/connect.ts';
import {print, say} from '../../client/text/output.ts';
import type {Dashboard} from '../../dashboard/serve.ts';
import {stopSignal} from '../terminal/stop-signal.ts';
import {featureReader} from './features.ts';

type DashboardOptions = CloudOptions & {listen: number; open?: boolean};

export async function dashboard(options: DashboardOptions): Promise<void> {
  const stopped = stopSignal();
  await withCloud(options, async cloud => {
    const page = await serve(cloud, options.listen);
    print<'dashboard'>(options.json, {url: page.url}, [
      `The page is at ${page.url}`,
      'Only the reader of this address can open it. Ctrl-C ends the page, and nothing else.',
    ]);
    if (options.open) openBrowser(page.url);
    await stopped;
    await page.close();
  });
}

/** The pages of a local cloud: on the port behind the one that a person has chosen, or on any free one. */
export async function serveBeside(cloud: Cloud, port: number): Promise<Dashboard> {
  if (port === 0) return serve(cloud, 0);
  return serve(cloud, port + 1).catch(() => serve(cloud, 0));
}

async function serve(cloud: Cloud, port: number): Promise<Dashboard> {
  const {serveDashboard} = await import('../../dashboard/serve.ts');
  return serveDashboard(cloud, port, undefined, featureReader(cloud.connection));
}

/** Opens the address in the browser of the person. Without a browser the person opens it. */
export function openBrowser(url: string): void {
  const [program, ...args] = process.platform === 'darwin' ? ['open', url] : ['xdg-open', url];
  const child = spawn(program ?? '', args, {stdio: 'ignore', detached: true});
  const complain = () => say(`No browser could be opened: open ${url} yourself`);
  child.once('error', complain);
  child.once('exit', code => code !== 0 && complain());
  child.unref();
}
