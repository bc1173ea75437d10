/** Queued resources: requests for nodes that wait until their zone has room. */
import type {Queued, Refusal} from '../../shared/domain/worker/provider-states.ts';
import type {TpuRequest} from '../../shared/ports/ports.ts';
import type {TpuFaults} from './tpu-faults.ts';
import type {FakeTpus} from './tpus.ts';

/** The part of a request that its node keeps. */
export type NodeRequest = Pick<TpuRequest, 'name' | 'zone' | 'accelerator' | 'labels' | 'metadata'> &
  Partial<Pick<TpuRequest, 'provider'>>;
export type QueuedResource = Queued & {request: NodeRequest & {queue?: TpuRequest['queue']}};

const MINUTE_S = 60;

/** The queued resources of all zones, by name. */
export class TpuQueue extends Map<string, QueuedResource> {
  readonly #faults: TpuFaults;
  readonly #tpus: FakeTpus;

  constructor(faults: TpuFaults, tpus: FakeTpus) {
    super();
    this.#faults = faults;
    this.#tpus = tpus;
  }

  enter(request: NodeRequest, valid_until_at: string): void {
    const queued = {state: '', initiator: 'USER', error: null, request, valid_until_at};
    this.set(request.name, queued);
    this.become(queued, 'ACCEPTED');
    this.#after(this.#faults.chance.between(1, 40), () => this.#provide(queued));
  }

  become(queued: QueuedResource, state: string): void {
    queued.state = state;
    this.#faults.see(`a queued resource is: ${state}`);
  }

  /** Whether no other request has its name by now. */
  holds(queued: QueuedResource): boolean {
    return this.get(queued.request.name) === queued;
  }

  /** The node of the queued resource is lost, and the queued resource brings no other. */
  suspend(queued: QueuedResource): void {
    const {name} = queued.request;
    if (!this.holds(queued) || ['DELETING', 'SUSPENDING', 'SUSPENDED'].includes(queued.state)) return;
    this.become(queued, 'SUSPENDING');
    queued.initiator = 'SERVICE';
    this.#after(this.#faults.chance.between(0, 3) * MINUTE_S, () => {
      if (queued.state !== 'SUSPENDING') return;
      this.become(queued, 'SUSPENDED');
      const node = this.#tpus.nodes.get(name);
      if (node?.from === queued) this.#tpus.remove(node);
    });
  }

  /** Tries again and again until the zone has room or the request is over. */
  #provide(queued: QueuedResource): void {
    const {chance, clockwork} = this.#faults;
    const {name, zone} = queued.request;
    if (!this.holds(queued) || !['ACCEPTED', 'WAITING_FOR_RESOURCES'].includes(queued.state)) return;
    const {overQuota} = this.#tpus.zone(zone);
    const soldOut = this.#tpus.isSoldOut(queued.request);
    if (overQuota) this.#fail(queued, 'quota');
    else if (clockwork.now > Date.parse(queued.valid_until_at ?? '')) this.#fail(queued, 'no-capacity');
    else if (this.#faults.strikes('suspension')) this.suspend(queued);
    else if (soldOut) {
      this.become(queued, 'WAITING_FOR_RESOURCES');
      // A stuck request is forgotten.
      if (!this.#faults.strikes('stuck')) this.#after(chance.between(20, 90), () => this.#provide(queued));
    } else if (this.#tpus.nodes.has(name)) this.#fail(queued, 'bad-request');
    else {
      this.become(queued, 'PROVISIONING');
      if (!this.#faults.strikes('stuck')) this.#tpus.make(queued.request, queued);
    }
  }

  #fail(queued: QueuedResource, kind: Refusal): void {
    this.become(queued, 'FAILED');
    this.#tpus.zone(queued.request.zone).refusals.add(kind);
    queued.error = {kind, message: `${kind} in ${queued.request.zone}`};
  }

  #after(delay_s: number, then: () => void): void {
    this.#faults.clockwork.after(delay_s * 1000, then);
  }
}
