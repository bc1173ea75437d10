/** Checks messages of operators: each changes only what it names, a rejected one changes nothing, and an applied one has its effect. */
import {isDeepStrictEqual} from 'node:util';
import {slotsIn} from '../../../shared/domain/commands/settings.ts';
import {jobWork, paths} from '../../../shared/domain/names.ts';
import type {Pool} from '../../../shared/domain/records/pool.ts';
import type {Zone} from '../../../shared/domain/records/zone.ts';
import type {Document, Stored} from '../../../shared/ports/ports.ts';
import {MAX_HANG_MINUTES} from '../conditions/faults.ts';
import {Check} from './violations.ts';

type Change = {path: string; before: Document | undefined; after: Document | undefined};

const FINAL = ['completed', 'failed', 'cancelled'];

export class Effects extends Check {
  /** Changes of the present commit. */
  #changes: Change[] = [];

  onCommit(path: string, before: Document | undefined, after: Document | undefined): void {
    this.#changes.push({path, before, after});
  }

  override onCommitted(): void {
    const changes = this.#changes;
    this.#changes = [];
    const {actor} = this.violations;
    const id = actor !== undefined && 'topic' in actor && actor.topic === 'control' ? actor.id : '';
    const message = this.context.messages.get(id);
    if (!message) return;
    const text = JSON.stringify(message);
    const others = changes.filter(({path}) => !/^(control|events|notices|tasks)\//.test(path));
    const stray = others.find(change => !this.#names(message, change));
    if (stray) this.breach(`${text} changed ${stray.path}`);
    const record = changes.find(({path}) => path === paths.control(id))?.after;
    if (record?.outcome === 'rejected' && others[0])
      this.breach(`${text} was rejected, and changed ${others[0].path}`);
    if (/GLEANER_MAX_WORKERS/.test(String(record?.reason))) this.#checkTooLarge(text, message);
    if (record?.outcome !== 'applied') return;
    const lacking = this.#lackOf(message, record, others);
    if (lacking !== undefined) this.breach(`${text} was applied (${record.reason}), and ${lacking}`);
  }

  /** A pool may shrink to a size that the deployment allows, whatever the other pools have. */
  #checkTooLarge(text: string, {pool = this.context.config.pool.pool, ...settings}: Document): void {
    const {config, store} = this.context;
    const found = store.peek(paths.pool(String(pool))) as Pool | undefined;
    const slots = found ? slotsIn({...found, ...settings} as Pool) : Number.POSITIVE_INFINITY;
    if (found && slots < slotsIn(found) && slots <= config.ceilings.max_workers)
      this.breach(`${text} was rejected, and the pool has ${slotsIn(found)} slots`);
  }

  /** True if the message is about the document, or about the work of the worker that the document describes. */
  #names(message: Document, {path, before, after}: Change): boolean {
    const {jobs_collection, pool: own} = this.context.config;
    const {run, stream, job, worker, action, pool = own.pool} = message;
    const isOf = (collection: string) => path.startsWith(`${collection}/`);
    if (job !== undefined)
      return path === paths.job(jobs_collection, String(job)) || before?.work === jobWork(String(job));
    if (action === 'correct') return path === paths.spending();
    if (action === 'clear') return isOf(jobs_collection) && after === undefined;
    if (message.where !== undefined) return isOf(jobs_collection);
    if (run !== undefined && stream !== undefined && before?.work === `${run}/${stream}`) return true;
    // The end of a run bills what the run owes.
    if (run !== undefined && isBill({path, before, after})) return true;
    if (run !== undefined) return path === paths.run(String(run)) || isOf(paths.run(String(run)));
    if (worker !== undefined) return path === paths.worker(String(worker));
    const ofPool = String(after?.pool ?? own.pool) === pool;
    return path === paths.pool(String(pool)) || (ofPool && (isOf('workers') || isOf('zones')));
  }

  /** The effect that an applied message lacks. */
  #lackOf(message: Document, {reason, published_at}: Document, changes: Change[]): string | undefined {
    const {config, store} = this.context;
    const {action, run, stream, job, worker, where, pool = config.pool.pool} = message;
    const found = (path: string) => store.peek(path) ?? {};
    const ofJob = found(paths.job(config.jobs_collection, String(job)));
    const ofStream = found(paths.stream(String(run), String(stream)));
    const ofWorker = found(paths.worker(String(worker)));
    const ofPool = found(paths.pool(String(pool))) as unknown as Pool;
    switch (action) {
      case 'cancel':
        if (job !== undefined && typeof ofJob.cancelled_at === 'string')
          return lack(ofJob, {status: 'running'});
        if (job !== undefined) return lack(ofJob, {status: 'cancelled', lease: null, queue: null});
        return lack(ofStream, {status: 'failed', lease: null});
      case 'retry':
        if (where !== undefined) return this.#lackOfRetries(where as {cause: string}, changes);
        if (job !== undefined) return lack(ofJob, {status: 'scheduled', ...NO_FAILURES});
        if (stream !== undefined) return lack(ofStream, {status: 'pending', failures: 0, faults: 0});
        return this.#oldIn(paths.streams(String(run)), ({status}) => status === 'failed', 'updated_at');
      case 'correct':
        return lack(found(paths.spending()).months as Document, {[String(message.month)]: message.usd});
      case 'clear':
        return this.#lackOfClear(String(message.before_at ?? '9'), String(reason), changes);
      case 'submit': {
        const {action: _, job: __, ...fields} = message;
        return lack(ofJob, {...fields, status: 'scheduled'});
      }
      case 'delete':
        return lack(ofWorker, {held: true});
      case 'recreate':
        return lack(ofWorker, {held: false});
      case 'pause':
        return run === undefined ? lack(ofPool.limiter, {state: 'stopped', cause: 'person'}) : undefined;
      case 'resume':
        return run === undefined ? this.#lackOfResume(ofPool, String(published_at)) : undefined;
      case 'update': {
        const before = changes.find(({path}) => path === paths.pool(String(pool)))?.before as
          | Pool
          | undefined;
        // A later message may have set a field of this one: see operator-intent.ts.
        const others = Object.entries(before?.environment ?? {}).filter(
          ([field]) => !(field in ((message.environment ?? {}) as Document)),
        );
        return (
          lack(ofPool, {source_version: (before?.source_version ?? 0) + 1}) ??
          lack(ofPool.environment, Object.fromEntries(others))
        );
      }
      case 'pool':
      case 'scale': {
        const {action: _, pool: __, if_version: ___, ...settings} = message;
        const isNew = changes.some(({path, before}) => path === paths.pool(String(pool)) && !before);
        // A later message may have set a field of an earlier one: see operator-intent.ts.
        return isNew && action === 'pool' ? lack(ofPool, settings) : undefined;
      }
      default:
        return undefined;
    }
  }

  /** Exactly the ended jobs that match are deleted. A job that ended during the message may stay. */
  #lackOfClear(before_at: string, reason: string, changes: Change[]): string | undefined {
    const isOld = ({status, completed_at}: Document) =>
      FINAL.includes(String(status)) && (before_at === '9' || String(completed_at) < before_at);
    const wrong = changes.find(({before}) => !before || !isOld(before));
    if (wrong) return `deleted ${wrong.path}, which is ${wrong.before?.status}`;
    const [, count] = /^(\d+) ended jobs are deleted/.exec(reason) ?? [];
    if (Number(count) !== changes.length) return `deleted ${changes.length} jobs`;
    for (const {path} of changes) {
      const submitted = this.context.submitted.get(path.split('/')[1] ?? '');
      if (submitted) submitted.isDeleted = true;
    }
    this.context.see('jobs are cleared');
    return this.#oldIn(this.context.config.jobs_collection, isOld, 'completed_at');
  }

  #lackOfRetries({cause}: {cause: string}, changes: Change[]): string | undefined {
    const isMeant = (job: Document) => job.status === 'failed' && job.cause === cause;
    const wrong = changes.find(({before}) => !before || !isMeant(before));
    if (wrong) return `changed ${wrong.path}, which was ${wrong.before?.status}: ${wrong.before?.cause}`;
    for (const {after} of changes) {
      const lacking = lack(after ?? {}, {status: 'scheduled', ...NO_FAILURES});
      if (lacking !== undefined) return lacking;
    }
    return this.#oldIn(this.context.config.jobs_collection, isMeant, 'completed_at');
  }

  #lackOfResume({pool, limiter, zones: wanted}: Pool, published_at: string): string | undefined {
    const {config, everAlone, store} = this.context;
    // A pool may have left a zone, whose document stays.
    const isOf = (zone: Zone) => (zone.pool ?? config.pool.pool) === pool && wanted.includes(zone.zone);
    const known = store.collection('zones').filter(({path}) => !everAlone.has(path));
    const zones = known.map(({data}) => data as unknown as Zone);
    const closed = zones.find(
      zone => isOf(zone) && zone.limiter.state !== 'open' && String(zone.limiter.since_at) <= published_at,
    );
    return lack(limiter, {state: 'open'}) ?? (closed && `${closed.zone} is ${closed.limiter.state}`);
  }

  /** A matching document that was so before any call of the message can have read it. */
  #oldIn(collection: string, isMeant: (data: Document) => boolean, field: string): string | undefined {
    const {clockwork, everAlone, storm, store} = this.context;
    const since = clockwork.now - (storm.hang > 0 ? MAX_HANG_MINUTES : 3) * 60_000;
    const isOld = ({path, data}: Stored) =>
      isMeant(data) && !everAlone.has(path) && Date.parse(String(data[field])) < since;
    const left = store.collection(collection).find(isOld);
    return left && `${left.path} is left, which is ${left.data.status}`;
  }
}

/** True if the change bills alone. The first bill of a pool may make its document. */
function isBill({path, before, after}: Change): boolean {
  if (before === undefined) return ['system/spending', 'pools/tpu'].includes(path);
  const fields = Object.keys({...before, ...after});
  const changed = fields.filter(field => !isDeepStrictEqual(before?.[field], after?.[field]));
  // The next release counts its writes of each document.
  const own = changed.filter(field => !['release', 'next_release'].includes(field));
  return path === 'system/spending' || (path.startsWith('pools/') && String(own) === 'spent_usd');
}

const NO_FAILURES = {failures: 0, machine_failures: 0, cause: null, error: null, completed_at: null};

/** The first field without the expected value. */
function lack(found: object, expected: object): string | undefined {
  for (const [field, value] of Object.entries(expected)) {
    const is = (found as Document)[field];
    if (!isDeepStrictEqual(is, value))
      return `${field} is ${JSON.stringify(is)}, not ${JSON.stringify(value)}`;
  }
  return undefined;
}
