/** The VMs of the nodes: they boot, speak to worker-api over a bad network, and are taken away in every known manner. */
import type {Request, Response} from '@google-cloud/functions-framework';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports.ts';
import {type Answer, SimAgent} from './agent.ts';
import {type SimNode, TAKEN} from './cloud.ts';
import type {Codes} from './code.ts';
import {type Context, MINUTE_MS} from './context.ts';
import type {Said} from './invariants/violations.ts';
import type {Process, Processes} from './processes.ts';

const REQUEST_TIMEOUT_MS = MINUTE_MS;
export const ILL = ['TIMEOUT', 'UNHEALTHY_TENSORFLOW', 'UNHEALTHY_MAINTENANCE'];
/** Of nodes that work all the same. */
export const SYMPTOMS = [
  'LOW_MEMORY',
  'OUT_OF_MEMORY',
  'HBM_OUT_OF_MEMORY',
  'EXECUTE_TIMED_OUT',
  'PROJECT_ABUSE',
];
/** What one shows that Google mends or moves. */
export const PASSING = ['REPAIRING', 'RESTARTING', 'REIMAGING', 'STARTING', 'UNHIDING', 'UNKNOWN'];

/** `cut` says from when until when its network is away, beside the network of its zone. */
type Machine = {process: Process; agent: SimAgent; cut: {zone: string; from: number; to: number}};

export class Vms {
  readonly #context: Context;
  readonly #functions: Processes;
  readonly #codes: Codes;
  readonly #vms = new Map<SimNode, Machine>();
  readonly #zombies: Process[] = [];

  constructor(context: Context, functions: Processes, codes: Codes) {
    this.#context = context;
    this.#functions = functions;
    this.#codes = codes;
    context.tpus.onReady = node => this.#boot(node);
    context.tpus.onGone = node => this.#end(node, 'its node is gone');
  }

  #boot(node: SimNode): void {
    const context = this.#context;
    const {clockwork, chance, faults} = context;
    this.#planLoss(node);
    const isStuck = context.strikes('stillborn');
    if (isStuck && chance.happens(0.5)) return;
    const isBad = context.strikes('bad_host');
    if (isBad) this.#show(node, 'MESH_BUILD_FAIL');
    const incarnation = Number(node.metadata['gleaner-incarnation']);
    const code = this.#codes.today;
    const process: Process = {
      name: `${node.name}#${incarnation}`,
      isDead: false,
      skew_ms: 0,
      specHashes: new Map(),
      code,
    };
    const drift = 1 + faults.drift * chance.between(-1, 1);
    if (drift !== 1) context.see('fault: drift');
    const from = context.strikes('cut') ? clockwork.now + context.minutes(1, 20) : Number.POSITIVE_INFINITY;
    const cut = {zone: node.zone, from, to: from + context.minutes(1, 8)};
    const agent = new SimAgent(node.name, incarnation, {
      api: body => this.#ask(process, cut, body),
      objects: context.objects.through(this.#extractorCalls(process, cut)),
      sleep: ms => new Promise(resolve => context.after(ms * drift, () => process.isDead || resolve())),
      seconds: (low, high) => context.chance.between(low, high),
      setup_s: isStuck ? Number.POSITIVE_INFINITY : chance.between(5, 90),
      fault: () => {
        if (isBad)
          return 'RuntimeError: TPU initialization failed: open(/dev/vfio/0): Device or resource busy';
        return context.strikes('machine_fault') ? 'the disk is full' : null;
      },
      isLying: () => context.strikes('lie'),
    });
    if (this.#zombies.some(zombie => !zombie.isDead && zombie.name.startsWith(`${node.name}#`)))
      context.see('two at once: a second machine of a slot');
    this.#vms.set(node, {process, agent, cut});
    void agent.live();
  }

  /** An extractor may hang or die alone: its process says that it lives, and nothing comes of it. */
  #extractorCalls(machine: Process, cut: Machine['cut']) {
    const extractor = {...machine};
    const call = this.#functions.calls(extractor);
    return <T>(verb: string, effect: () => T) => {
      extractor.isDead ||= machine.isDead;
      if (this.#isCut(cut)) return Promise.reject(new Error(`${verb}: no network`));
      return call(verb, effect);
    };
  }

  #planLoss(node: SimNode): void {
    const {chance, faults} = this.#context;
    if (faults.preemption > 0) {
      const hours = -Math.log(1 - chance.next()) / faults.preemption;
      this.#context.after(hours * 60 * MINUTE_MS, () => this.#isThere(node) && this.#take(node));
    }
    if (this.#context.strikes('ill'))
      this.#context.after(this.#context.minutes(0, 20), () => this.#fallIll(node));
    if (!this.#context.strikes('repair')) return;
    this.#context.after(this.#context.minutes(1, 20), () => {
      if (!this.#isThere(node) || node.state !== 'READY') return;
      this.#context.tpus.turn(node, chance.pick(PASSING));
      if (chance.happens(0.3)) {
        this.#end(node, 'nobody mends it');
        return;
      }
      this.#context.after(this.#context.minutes(1, 15), () => {
        if (PASSING.includes(node.state)) this.#context.tpus.turn(node, 'READY');
      });
    });
  }

  /** Cloud TPU says that something is wrong with a node that works; only of maintenance it says that it comes back. */
  #fallIll(node: SimNode): void {
    if (!this.#isThere(node)) return;
    node.health = this.#context.chance.pick(ILL);
    this.#context.see(`a node is said to be: ${node.health}`);
    this.#show(node, this.#context.chance.pick(SYMPTOMS));
    this.#context.after(this.#context.minutes(1, 15), () => {
      node.health = 'HEALTHY';
    });
  }

  #show(node: SimNode, symptom: string): void {
    node.symptoms.push({symptom, details: '', created_at: iso(this.#context.clockwork.now)});
    this.#context.see(`a node is said to be: ${symptom}`);
  }

  #isCut({zone, from, to}: Machine['cut']): boolean {
    const {now} = this.#context.clockwork;
    const isOwn = from <= now && now < to;
    return (isOwn || this.#context.cutZones.has(zone)) && !this.#context.isCalm;
  }

  #isThere(node: SimNode): boolean {
    return this.#context.tpus.nodes.get(node.name) === node && !this.#context.isCalm;
  }

  /** A zone takes all its nodes back at once. */
  storm(zone: string): void {
    for (const node of this.#context.tpus.nodes.values())
      if (node.zone === zone && node.state === 'READY')
        this.#context.after(this.#context.minutes(0, 1), () => this.#isThere(node) && this.#take(node));
  }

  #take(node: SimNode): void {
    const context = this.#context;
    if (context.faults.preemption > 0) context.see('fault: preemption');
    context.note(() => `${node.name} is taken away`);
    if (context.strikes('notice')) void this.#vms.get(node)?.agent.preempted();
    if (context.strikes('vanish')) {
      context.tpus.remove(node);
      return;
    }
    if (context.strikes('deaf')) {
      this.#end(node, 'it hangs, and its node stays READY');
      return;
    }
    context.after(context.chance.between(0, 30_000), () => {
      if (!this.#isThere(node) || node.state === 'DELETING') return;
      context.tpus.turn(node, context.chance.pick(TAKEN));
      context.tpus.taken(node);
      this.#end(node, node.state);
    });
  }

  /** The machine of the node stops; or it works on for a while and does not know that it is none any more. */
  #end(node: SimNode, why: string): void {
    const machine = this.#vms.get(node);
    if (!machine) return;
    this.#vms.delete(node);
    this.#context.note(() => `${node.name} ends: ${why}`);
    const end = () => {
      machine.process.isDead = true;
    };
    const isZombie = this.#context.strikes('zombie');
    if (isZombie) this.#zombies.push(machine.process);
    this.#context.after(isZombie ? this.#context.minutes(1, 25) : 0, end);
  }

  /** A request over the network: it may not arrive, or late, its answer may not, and its function may die meanwhile. */
  #ask(from: Process, cut: Machine['cut'], body: object): Promise<Answer> {
    const context = this.#context;
    return new Promise(resolve => {
      // A promise that is settled takes no second answer.
      const answer = (given: Answer) => from.isDead || resolve(given);
      const isLate = context.strikes('late');
      context.after(isLate ? context.minutes(1, 20) : this.#functions.latency(), () => {
        if (from.isDead && !isLate) return;
        const isCut = this.#isCut(cut);
        if (isCut || context.isApiOut || context.strikes('refusal')) answer({status: 503, body: {}});
        else this.#serve(body, answer);
      });
      context.after(REQUEST_TIMEOUT_MS, () => answer({status: 504, body: {}}));
    });
  }

  #serve(body: object, answer: (given: Answer) => void): void {
    const context = this.#context;
    const process = this.#functions.instance();
    context.note(() => `${process.name} is asked ${JSON.stringify(body)}`);
    const response = {
      statusCode: 0,
      status: (status: number) => Object.assign(response, {statusCode: status}),
      json: (json: object) => {
        const {statusCode: status} = response;
        context.invariants.onAnswer(body as Said, status, json as Document);
        if (!context.strikes('silence')) answer({status, body: JSON.parse(JSON.stringify(json))});
      },
    };
    context.invariants.onAsked(body as Said);
    const deps = this.#functions.deps(process, {said: body as Said});
    process.code.workerApi(deps, {body} as Request, response as unknown as Response).catch(error => {
      context.note(() => `${process.name} fails: ${error.message}`);
      context.invariants.onFailure(error);
      answer({status: 500, body: {}});
    });
  }
}
