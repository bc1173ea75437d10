/** Cloud TPU of a project with several deployments: each of them sees the nodes and queued resources of all. */
import type {Tpus} from '../../shared/ports/ports.ts';
import type {Call} from '../world/call.ts';
import type {FakeTpus} from '../world/tpus.ts';

const directly: Call = async (_, effect) => effect();

export class SharedProject {
  readonly #own: FakeTpus;
  readonly #others: readonly FakeTpus[];
  /** Creates and deletes of nodes that another deployment owns. */
  readonly trespasses: string[] = [];
  /** Lists that showed nodes of another deployment. */
  sightings = 0;

  constructor(own: FakeTpus, others: readonly FakeTpus[]) {
    this.#own = own;
    this.#others = others;
  }

  through(call: Call): Tpus {
    const portOf = (name: string) => this.#ownerOf(name).through(call);
    return {
      list: async () => {
        const {tpus, unreachable} = await this.#own.through(call).list();
        const lists = await Promise.all(this.#others.map(other => other.through(directly).list()));
        const foreign = lists.flatMap(list => list.tpus).filter(({zone}) => !unreachable.includes(zone));
        if (foreign.length > 0) this.sightings++;
        return {tpus: [...tpus, ...foreign], unreachable};
      },
      get: (name, zone) => portOf(name).get(name, zone),
      create: request => {
        this.#note('creates', request.name);
        return portOf(request.name).create(request);
      },
      delete: (name, zone, part) => {
        this.#note('deletes', name);
        return portOf(name).delete(name, zone, part);
      },
    };
  }

  #ownerOf(name: string): FakeTpus {
    const holds = ({nodes, queue}: FakeTpus) => nodes.has(name) || queue.has(name);
    return [this.#own, ...this.#others].find(holds) ?? this.#own;
  }

  #note(verb: string, name: string): void {
    if (this.#ownerOf(name) !== this.#own) this.trespasses.push(`${verb} ${name}`);
  }
}
