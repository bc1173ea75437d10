/** The VMs of nodes boot, send requests to worker-api over an unreliable network, and are lost in every known way. */
import {hostsOfType} from '../../shared/domain/fleet/accelerators.ts';
import {iso} from '../../shared/domain/time.ts';
import type {Document} from '../../shared/ports/ports.ts';
import {type Answer, FakeAgent} from '../world/agent.ts';
import {asHost, askWorkerApi, secretOf} from '../world/bus.ts';
import type {Call} from '../world/call.ts';
import type {Chance} from '../world/clock.ts';
import {type FakeNode, TAKEN} from '../world/tpus.ts';
import {AgentLoop, RETRY_MS} from './agent.ts';
import {MINUTE_MS} from './conditions/times.ts';
import type {Context} from './context.ts';
import {forgedBy} from './forger.ts';
import {isUp, workersOf} from './invariants/nodes.ts';
import type {WorkerRequest} from './invariants/violations.ts';
import type {Speech} from './invariants.ts';
import type {Codes} from './planting/code.ts';
import type {Process, Processes} from './processes.ts';

const REQUEST_TIMEOUT_MS = MINUTE_MS;
/** Their network costs as much as some minutes of a TPU, and in a world of small budgets as much as an hour. */
const WEIGHTS_BYTES = 100_000_000;
const HEAVY_BYTES = 3_000_000_000;
export const UNHEALTHY = ['TIMEOUT', 'UNHEALTHY_TENSORFLOW', 'UNHEALTHY_MAINTENANCE'];
/** Symptoms that a working node can have. */
export const SYMPTOMS = [
  ...['LOW_MEMORY', 'OUT_OF_MEMORY', 'HBM_OUT_OF_MEMORY'],
  ...['EXECUTE_TIMED_OUT', 'PROJECT_ABUSE'],
];
/** States of a node during a repair or a move by Google. */
export const TRANSIENT = ['REPAIRING', 'RESTARTING', 'REIMAGING', 'STARTING', 'UNHIDING', 'UNKNOWN'];

/** `cut` is the time without a network of its own. The network of its zone may also be down. */
type Machine = {
  process: Process;
  agent: FakeAgent;
  cut: {zone: string; from: number; to: number};
  secret: string;
};
/** Faults of the machines of a node from its boot on. */
type Ills = {isBadImage: boolean; isStuck: boolean; isBadHost: boolean};

export class Vms {
  readonly #context: Context;
  readonly #functions: Processes;
  readonly #codes: Codes;
  /** The machines of each node, by the number of their host. */
  readonly #vms = new Map<FakeNode, Machine[]>();
  readonly #zombies: Process[] = [];
  readonly #repeats: Chance | undefined;
  readonly #hangs: Chance | undefined;
  readonly #forges: Chance | undefined;
  readonly #slices: Chance | undefined;

  constructor(context: Context, functions: Processes, codes: Codes) {
    this.#context = context;
    this.#functions = functions;
    this.#codes = codes;
    this.#repeats = context.drawsOf('hurried people');
    this.#hangs = context.drawsOf('hung');
    this.#forges = context.drawsOf('early forger');
    this.#slices = context.drawsOf('slices');
    context.tpus.onReady = node => this.#boot(node);
    context.tpus.onGone = node => this.#end(node, 'its node is gone');
  }

  #boot(node: FakeNode): void {
    const context = this.#context;
    const {chance} = context;
    this.#planLoss(node);
    const isBadImage = context.hasBadImage && !context.isCalm;
    const isStuck = context.strikes('stillborn') || isBadImage;
    if (isStuck && !isBadImage && chance.happens(0.5)) return;
    const isBadHost = context.strikes('bad_host');
    if (isBadHost) this.#addSymptom(node, 'MESH_BUILD_FAIL');
    const ills = {isBadImage, isStuck, isBadHost};
    const hosts = hostsOfType(node.accelerator);
    this.#vms.set(node, []);
    for (let host = 0; host < hosts; host++) this.#bootHost(node, host, ills);
    if (hosts > 1) this.#planHostFaults(node, hosts, ills);
  }

  /** One host of a slice dies, has no network for minutes, or starts again. */
  #planHostFaults(node: FakeNode, hosts: number, ills: Ills): void {
    const draws = this.#slices;
    if (!draws) return;
    const [kind, host, minutes] = [draws.next(), draws.integer(0, hosts - 1), draws.between(1, 15)];
    this.#context.after(minutes * MINUTE_MS, () => {
      const machine = this.#vms.get(node)?.[host];
      if (!machine || !this.#exists(node) || kind > 0.6) return;
      this.#context.see(`a host of a slice: ${kind < 0.2 ? 'dies' : kind < 0.4 ? 'is cut' : 'restarts'}`);
      const {now} = this.#context.clockwork;
      if (kind < 0.2 || kind > 0.4) machine.process.isDead = true;
      else Object.assign(machine.cut, {from: now, to: now + draws.between(1, 12) * MINUTE_MS});
      if (kind > 0.4) this.#bootHost(node, host, ills, machine.secret);
    });
  }

  /** `secret`: of the host, where it starts again. */
  #bootHost(node: FakeNode, host: number, {isBadImage, isStuck, isBadHost}: Ills, secret?: string): void {
    const context = this.#context;
    const {clockwork, chance, faults} = context;
    const incarnation = Number(node.metadata['gleaner-incarnation']);
    const code = this.#codes.current;
    const process: Process = {
      name: host === 0 ? `${node.name}#${incarnation}` : `${node.name}#${incarnation}/${host}`,
      isDead: false,
      skew_ms: 0,
      memory: code.newMemory(),
      code,
    };
    const drift = 1 + faults.drift * chance.between(-1, 1);
    if (drift !== 1) context.see('fault: drift');
    const from = context.strikes('cut') ? clockwork.now + context.minutes(1, 20) : Number.POSITIVE_INFINITY;
    const cut = {zone: node.zone, from, to: from + context.minutes(1, 8)};
    const sleep = (ms: number) =>
      new Promise<void>(resolve => context.after(ms * drift, () => process.isDead || resolve()));
    const objects = context.objects.through(repeated(this.#extractorCalls(process, cut), sleep));
    const ticket = String(node.metadata['gleaner-ticket']);
    const own = secret ?? secretOf(`${node.name} of ${clockwork.now}`, incarnation, host);
    const ask = (body: object) => {
      const forged = context.strikes('forgery') ? forgedBy(context, node.name, ticket) : undefined;
      if (forged) void this.#request(process, cut, {secret: own, isForged: true}, forged);
      this.#forgeHellos(process, cut, {secret: own, isForged: true}, {name: node.name, ticket});
      return this.#request(process, cut, {secret: own, isForged: false}, body);
    };
    const agent = new FakeAgent(node.name, incarnation, ticket, ask, objects, host);
    agent.mostReports = 600_000 / RETRY_MS;
    const loop = new AgentLoop(agent, {
      sleep,
      seconds: (low, high) => context.chance.between(low, high),
      bootFault: isBadImage || (isStuck && incarnation % 2 === 0) ? 'the disk is full' : null,
      setup_s: isStuck ? Number.POSITIVE_INFINITY : this.#setupOf(host),
      hosts: hostsOfType(node.accelerator),
      isBadHost,
      fault: () => {
        if (isBadHost)
          return 'RuntimeError: TPU initialization failed: open(/dev/vfio/0): Device or resource busy';
        return context.strikes('machine_fault') ? 'the disk is full' : null;
      },
      modelFailure: run => context.modelFailure(run),
      hangs: () => !context.isCalm && (this.#hangs?.happens(0.05) ?? false),
      weights_bytes: context.drawsOf('run budgets') ? HEAVY_BYTES : WEIGHTS_BYTES,
      isLying: () => context.strikes('lie'),
      onExec: exec => context.invariants.execs.onStarted(exec, node.name, incarnation, host),
      die: () => {
        context.see(isStuck ? 'a boot fails' : 'a job kills its machine');
        process.isDead = true;
      },
    });
    if (this.#zombies.some(zombie => !zombie.isDead && zombie.name.startsWith(`${node.name}#`)))
      context.see('at the same time: a second machine of a slot');
    const machines = this.#vms.get(node) ?? [];
    machines[host] = {process, agent, cut, secret: own};
    void loop.run();
  }

  /** In some worlds a further host of a slice is slow, and misses the barrier or its end. */
  #setupOf(host: number): number {
    const seconds = this.#context.chance.between(5, 90);
    const isSlow = host > 0 && this.#slices?.happens(0.15) && !this.#context.isCalm;
    return isSlow ? seconds * 12 : seconds;
  }

  /** In some worlds a machine says hello in the name of every worker that has not yet said it. */
  #forgeHellos(
    process: Process,
    cut: Machine['cut'],
    speech: Speech,
    own: {name: string; ticket: string},
  ): void {
    if (!this.#forges?.happens(0.5) || this.#context.isCalm) return;
    for (const {name, incarnation, host_secrets} of workersOf(this.#context.store).filter(isUp))
      if (name !== own.name && host_secrets[0] === undefined)
        void this.#request(process, cut, speech, {
          action: 'hello',
          worker: name,
          incarnation,
          host: 0,
          ticket: own.ticket,
        });
  }

  /** The extractor may hang or crash alone. Then its agent still sends heartbeats, but stores nothing. */
  #extractorCalls(machine: Process, cut: Machine['cut']): Call {
    const extractor = {...machine};
    const call = this.#functions.calls(extractor);
    return (verb, effect) => {
      extractor.isDead ||= machine.isDead;
      if (this.#isCut(cut)) return Promise.reject(new Error(`${verb}: no network`));
      return call(verb, effect);
    };
  }

  #planLoss(node: FakeNode): void {
    const {chance, faults} = this.#context;
    if (faults.preemption > 0) {
      const hours = -Math.log(1 - chance.next()) / faults.preemption;
      this.#context.after(hours * 60 * MINUTE_MS, () => this.#exists(node) && this.#preempt(node));
    }
    if (this.#context.strikes('ill'))
      this.#context.after(this.#context.minutes(0, 20), () => this.#makeUnhealthy(node));
    if (!this.#context.strikes('repair')) return;
    this.#context.after(this.#context.minutes(1, 20), () => {
      if (!this.#exists(node) || node.state !== 'READY') return;
      this.#context.tpus.turn(node, chance.pick(TRANSIENT));
      if (chance.happens(0.3)) {
        this.#end(node, 'its repair never ends');
        return;
      }
      this.#context.after(this.#context.minutes(1, 15), () => {
        if (TRANSIENT.includes(node.state)) this.#context.tpus.turn(node, 'READY');
      });
    });
  }

  /** Cloud TPU reports bad health of a working node. */
  #makeUnhealthy(node: FakeNode): void {
    if (!this.#exists(node)) return;
    node.health = this.#context.chance.pick(UNHEALTHY);
    this.#context.see(`a node is reported: ${node.health}`);
    this.#addSymptom(node, this.#context.chance.pick(SYMPTOMS));
    this.#context.after(this.#context.minutes(1, 15), () => {
      node.health = 'HEALTHY';
    });
  }

  #addSymptom(node: FakeNode, symptom: string): void {
    node.symptoms.push({symptom, details: '', created_at: iso(this.#context.clockwork.now)});
    this.#context.see(`a node is reported: ${symptom}`);
  }

  #isCut({zone, from, to}: Machine['cut']): boolean {
    const {now} = this.#context.clockwork;
    const isOwn = from <= now && now < to;
    return (isOwn || this.#context.cutZones.has(zone)) && !this.#context.isCalm;
  }

  #exists(node: FakeNode): boolean {
    return this.#context.tpus.nodes.get(node.name) === node && !this.#context.isCalm;
  }

  /** Preempts all nodes of a zone within a minute. */
  preemptZone(zone: string): void {
    for (const node of this.#context.tpus.nodes.values())
      if (node.zone === zone && node.state === 'READY')
        this.#context.after(this.#context.minutes(0, 1), () => this.#exists(node) && this.#preempt(node));
  }

  #preempt(node: FakeNode): void {
    const context = this.#context;
    if (context.faults.preemption > 0) context.see('fault: preemption');
    context.note(() => `${node.name} is preempted`);
    if (context.strikes('notice')) void this.#vms.get(node)?.at(-1)?.agent.preempted();
    if (context.strikes('vanish')) {
      context.tpus.remove(node);
      return;
    }
    if (context.strikes('deaf')) {
      this.#end(node, 'it hangs, and its node stays READY');
      return;
    }
    context.after(context.chance.between(0, 30_000), () => {
      if (!this.#exists(node) || node.state === 'DELETING') return;
      context.tpus.turn(node, context.chance.pick(TAKEN));
      context.tpus.suspend(node);
      this.#end(node, node.state);
    });
  }

  /** Stops the machine of a node, at once or minutes after the loss of the node. */
  #end(node: FakeNode, why: string): void {
    const machines = this.#vms.get(node);
    if (!machines) return;
    this.#vms.delete(node);
    this.#context.note(() => `the machine of ${node.name} stops: ${why}`);
    const end = () => {
      for (const {process} of machines) process.isDead = true;
    };
    const isZombie = this.#context.strikes('zombie');
    if (isZombie) this.#zombies.push(...machines.map(({process}) => process));
    this.#context.after(isZombie ? this.#context.minutes(1, 25) : 0, end);
  }

  /** Sends a request over the network. The request and its answer may be late or lost, and the function may crash. */
  #request(from: Process, cut: Machine['cut'], speech: Speech, body: object): Promise<Answer> {
    const context = this.#context;
    return new Promise(resolve => {
      // A settled promise ignores a second answer.
      const answer = (given: Answer) => from.isDead || resolve(given);
      const isLate = context.strikes('late');
      context.after(isLate ? context.minutes(1, 20) : this.#functions.latency(), () => {
        if (from.isDead && !isLate) return;
        const isCut = this.#isCut(cut);
        if (isCut || context.isApiOut || context.strikes('refusal')) answer({status: 503, body: {}});
        else this.#handle(speech, body, answer);
      });
      context.after(REQUEST_TIMEOUT_MS, () => answer({status: 504, body: {}}));
      this.#repeatReport(speech, body as WorkerRequest);
    });
  }

  /** In some worlds the network repeats the report of an end, some minutes later. */
  #repeatReport(speech: Speech, request: WorkerRequest): void {
    const {context, draws} = {context: this.#context, draws: this.#repeats};
    if (!draws || !['finish', 'release'].includes(request.action) || !draws.happens(0.5)) return;
    const minutes = draws.between(0.2, 4);
    context.after(minutes * MINUTE_MS, () => {
      if (!context.isCalm && !context.isApiOut) this.#handle(speech, {...request}, () => {});
    });
  }

  #handle(speech: Speech, body: object, answer: (given: Answer) => void): void {
    const context = this.#context;
    const process = this.#functions.instance();
    context.note(() => `${process.name} receives ${JSON.stringify(body)}`);
    const request = body as WorkerRequest;
    context.invariants.onRequest(request, speech);
    const deps = this.#functions.deps(process, {request, isForged: speech.isForged});
    askWorkerApi(process.code.workerApi, deps, asHost(speech.secret), body, (status, answered) => {
      context.invariants.onAnswer(request, speech, status, answered as Document);
      if (!context.strikes('silence')) answer({status, body: answered as Document});
    }).catch(error => {
      context.note(() => `${process.name} fails: ${error.message}`);
      context.invariants.onFailure(error);
      answer({status: 500, body: {}});
    });
  }
}

/** Repeats each call until it succeeds. */
function repeated(call: Call, sleep: (ms: number) => Promise<void>): Call {
  return async (verb, effect) => {
    for (;;) {
      try {
        return await call(verb, effect);
      } catch {
        await sleep(RETRY_MS);
      }
    }
  };
}
