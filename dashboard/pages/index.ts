/** The pages by their addresses: each reads a view of the cloud and draws it. */
import type {Cloud} from '../../client/cloud/cloud.ts';
import {collectionsOf, isKnownPath, readCollection, readDocument} from '../../client/views/documents.ts';
import {readExec, readExecs} from '../../client/views/execs.ts';
import {askedFeature, type FeatureReader} from '../../client/views/feature.ts';
import {readFleetView} from '../../client/views/fleet.ts';
import {readJobPage, readJobs} from '../../client/views/jobs.ts';
import {readOverview} from '../../client/views/overview.ts';
import {readRunPage, readStreamPage} from '../../client/views/run-page.ts';
import {readTimeline} from '../../client/views/timeline.ts';
import {readTpuPage} from '../../client/views/tpu-page.ts';
import {isRunId, JOB, parseWorkerName} from '../../shared/domain/names.ts';
import type {Objects} from '../../shared/ports/ports.ts';
import {PageError, type Section} from '../html/feed.ts';
import {collectionPage, collectionsPage, documentPage} from './documents.ts';
import {eventsPage} from './events.ts';
import {featurePage} from './feature.ts';
import {fleetPage} from './fleet.ts';
import {execPage, jobPage, jobsPage} from './jobs.ts';
import {overviewPage} from './overview.ts';
import {runPage} from './run-page.ts';
import {streamPage} from './stream.ts';
import {tpuPage} from './tpu.ts';

const NEWEST_JOBS = 50;
const NEWEST_EXECS = 30;

/** `logs`: the bucket of the logs of TPUs. */
export type Source = {cloud: Cloud; logs: Objects; features?: FeatureReader | undefined; now: () => number};
type Asked = {params: Record<string, string>; query: URLSearchParams};
type Page = {
  path: string;
  title: (params: Record<string, string>) => string;
  read: (source: Source, asked: Asked) => Promise<Section[]>;
};

export const PAGES: Page[] = [
  {
    path: '/',
    title: () => 'Overview',
    read: async ({cloud, now}) => overviewPage(await readOverview(cloud, now()), now()),
  },
  {
    path: '/fleet',
    title: () => 'Fleet',
    read: async ({cloud, now}) => fleetPage(await readFleetView(cloud, now()), now()),
  },
  {
    path: '/runs/:run',
    title: ({run}) => `Run ${run}`,
    read: async ({cloud, now}, {params: {run = ''}}) => {
      const page = await readRunPage(cloud, isRunId(run) ? run : missing('run', run));
      if (!page.state) throw new PageError(page.invalid[0] ?? `There is no run "${run}"`, 404);
      return runPage(page, now());
    },
  },
  {
    path: '/runs/:run/streams/:stream',
    title: ({run, stream}) => `Stream ${run}/${stream}`,
    read: async ({cloud, now}, {params: {run = '', stream = ''}}) => {
      const isId = isRunId(run) && /^\d{3,9}$/.test(stream);
      const page = isId ? await readStreamPage(cloud, run, stream) : undefined;
      return streamPage(page ?? missing('stream', `${run}/${stream}`), now());
    },
  },
  {
    path: '/runs/:run/features/:name/:layer/:id',
    title: ({run, name, layer, id}) => `Feature ${name}.${layer} ${id} of ${run}`,
    read: async ({cloud, features}, {params: {run = '', name = '', layer = '', id = ''}, query}) => {
      const isKnown = features && isRunId(run) && /^\d{1,9}\.\d{1,9}$/.test(`${layer}.${id}`);
      const wanted = {run, name, layer: Number(layer), id: Number(id)};
      const asked = isKnown ? await askedFeature(cloud, wanted) : undefined;
      if (!features || !asked) return missing('feature', `${run}/${name}.${layer}/${id}`);
      const mayRead = !cloud.connection.is_google || query.get('read') === '1';
      return featurePage(asked, await features.read(asked, mayRead));
    },
  },
  tpu('/tpus/:tpu'),
  tpu('/tpus/:tpu/:life{[0-9]+}'),
  {
    path: '/jobs',
    title: () => 'Jobs',
    read: async ({cloud, now}) => {
      const jobs = await readJobs(cloud, {limit: NEWEST_JOBS});
      return jobsPage({jobs, execs: await readExecs(cloud, NEWEST_EXECS)}, now());
    },
  },
  {
    path: '/jobs/:job',
    title: ({job}) => `Job ${job}`,
    read: async ({cloud, now}, {params: {job = ''}}) =>
      jobPage(
        (await readJobPage(cloud, JOB.test(job) ? job : missing('job', job))) ?? missing('job', job),
        now(),
      ),
  },
  {
    path: '/execs/:exec',
    title: () => 'Command',
    read: async ({cloud, now}, {params: {exec = ''}}) =>
      execPage((JOB.test(exec) ? await readExec(cloud, exec) : undefined) ?? missing('command', exec), now()),
  },
  {
    path: '/events',
    title: () => 'Events',
    read: async ({cloud}, {query}) => {
      const of = (name: string) => query.get(name) || undefined;
      const filter = {run: of('run'), kind: of('kind'), text: of('text')};
      if (filter.run !== undefined && !isRunId(filter.run)) missing('run', filter.run);
      return eventsPage(await readTimeline(cloud, filter), filter);
    },
  },
  {
    path: '/documents',
    title: () => 'Documents',
    read: async ({cloud}) => collectionsPage(collectionsOf(cloud)),
  },
  {
    path: '/documents/:path{.+}',
    title: ({path}) => path ?? '',
    read: async ({cloud}, {params: {path = ''}, query}) => {
      if (!isKnownPath(cloud, path)) missing('document', path);
      if (path.split('/').length % 2 === 0) return documentPage(await readDocument(cloud, path));
      return collectionPage(await readCollection(cloud, path, query.get('after') ?? undefined));
    },
  },
];

function tpu(path: string): Page {
  return {
    path,
    title: ({tpu}) => tpu ?? '',
    read: async ({cloud, logs, now}, {params: {tpu: name = '', life}}) => {
      const incarnation = life === undefined ? undefined : Number(life);
      const isName = parseWorkerName(name) !== undefined;
      const page = isName ? await readTpuPage(cloud, logs, {name, incarnation}, now()) : undefined;
      return tpuPage(page ?? missing('TPU', life === undefined ? name : `${name}, life ${life}`), now());
    },
  };
}

function missing(kind: string, name: string): never {
  throw new PageError(`There is no ${kind} "${name}"`, 404);
}
