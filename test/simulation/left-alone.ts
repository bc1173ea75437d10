/**
 * A later release, or a person, writes a field that the releases of the world do not understand. The document is restored when the storm is
 * over. Until then no release may write it. The machine of a job that is left alone is often recreated.
 */
import type {Document} from '../../shared/ports/ports.ts';
import type {Chance} from '../world/clock.ts';
import type {Context} from './context.ts';
import type {Delivery} from './delivery.ts';
import type {Lease} from './invariants/leases.ts';

const MOST = 3;

/** Fields of a type that no release knows. The invariants read none of them. */
const FIELDS: Record<string, Document> = {
  streams: {faults: 'many', later: {nested: [1]}},
  jobs: {machine_failures: 'many', later: {nested: [1]}},
  zones: {orphans: 7, later: {nested: [1]}},
};

export class LeftAlone {
  readonly #context: Context;
  readonly #delivery: Delivery;

  constructor(context: Context, delivery: Delivery, storm_ms: number) {
    this.#context = context;
    this.#delivery = delivery;
    const chance = context.drawsOf('left alone');
    for (let count = chance?.integer(1, MOST) ?? 0; chance && count > 0; count--)
      context.after(chance.between(0.1, 0.9) * storm_ms, () => void this.#spoil(chance));
  }

  async #spoil(chance: Chance): Promise<void> {
    const {alone, config, isCalm, store} = this.#context;
    const kind = chance.pick(['streams', 'jobs', 'zones']);
    const streams = store.collection('runs').map(({id}) => `runs/${id}/streams`);
    const names = kind === 'streams' ? streams : [kind === 'jobs' ? config.jobs_collection : kind];
    // A new job is input, and no document of the control plane yet.
    const found = names
      .flatMap(name => store.collection(name))
      .filter(({data}) => data.release !== undefined);
    const running = found.filter(({data}) => data.status === 'running');
    const paths = (running.length > 0 ? running : found)
      .map(({path}) => path)
      .filter(path => !alone.has(path));
    if (isCalm || paths.length === 0) return;
    const path = chance.pick(paths);
    const worker = (store.peek(path)?.lease as Lease | null | undefined)?.worker;
    if (kind === 'jobs' && worker && chance.happens(0.7))
      this.#context.after(
        60_000,
        () => this.#context.isCalm || this.#delivery.command({action: 'recreate', worker}),
      );
    const fields = FIELDS[kind] ?? {};
    const before = store.peek(path) ?? {};
    await this.#context.edit(async tx => {
      const run = kind === 'streams' ? path.slice(0, path.indexOf('/streams/')) : undefined;
      const [document, parent] = [await tx.get(path), run && (await tx.get(run))];
      const at = new Date(this.#context.clockwork.now).toISOString();
      if (run && parent) tx.set(run, {...parent, changed_at: at, updated_at: at});
      tx.set(path, {...document, ...fields, release: 'a later one'});
    });
    alone.set(path, Object.fromEntries(Object.keys(fields).map(field => [field, before[field] ?? null])));
    this.#context.everAlone.add(path);
    this.#context.see(`a document is left alone: ${kind}`);
    this.#context.note(() => `a later release writes ${path}`);
  }

  /** Restores the fields. A lost database has lost the documents. */
  async restore(): Promise<void> {
    const {alone} = this.#context;
    for (const [path, {later: _, ...fields}] of [...alone]) {
      alone.delete(path);
      await this.#context.edit(async tx => {
        const {later: _later, ...data} = (await tx.get(path)) ?? {};
        if (Object.keys(data).length > 0) tx.set(path, {...data, ...fields});
      });
    }
  }
}
