/** The VMs of the nodes: they boot, speak to worker-api over a bad network, and are taken away in every known manner. */
import type {Request, Response} from '@google-cloud/functions-framework';
import {workerApi} from '../../functions/worker-api.ts';
import {type Answer, SimAgent} from './agent.ts';
import type {SimNode} from './cloud.ts';
import type {Process, Processes} from './processes.ts';
import {MINUTE_MS, type Setting} from './setting.ts';

const REQUEST_TIMEOUT_MS = MINUTE_MS;

type Machine = {process: Process; agent: SimAgent};

export class Machines {
  readonly #setting: Setting;
  readonly #functions: Processes;
  readonly #machines = new Map<SimNode, Machine>();

  constructor(setting: Setting, functions: Processes) {
    this.#setting = setting;
    this.#functions = functions;
    setting.tpus.onReady = node => this.#boot(node);
    setting.tpus.onGone = node => this.#end(node, 'its node is gone');
  }

  #boot(node: SimNode): void {
    const setting = this.#setting;
    setting.seen.add('READY');
    this.#planLoss(node);
    if (setting.strikes('stillborn', setting.faults.stillborn)) return;
    const process: Process = {name: node.name, isDead: false, skew_ms: 0, taken: new Set()};
    const agent = new SimAgent(node.name, Number(node.metadata['gleaner-incarnation']), {
      api: body => this.#ask(process, body),
      objects: setting.objects.through(this.#extractorCalls(process)),
      sleep: ms => new Promise(resolve => setting.after(ms, () => process.isDead || resolve())),
      seconds: (low, high) => setting.chance.between(low, high),
      isFaulty: () => setting.strikes('machine fault', setting.faults.machine_fault),
    });
    this.#machines.set(node, {process, agent});
    void agent.live();
  }

  /** An extractor may hang or die alone: its process says that it lives, and nothing comes of it. */
  #extractorCalls(machine: Process) {
    const extractor = {...machine};
    const call = this.#functions.calls(extractor);
    return <T>(verb: string, effect: () => T) => {
      extractor.isDead ||= machine.isDead;
      return call(verb, effect);
    };
  }

  #planLoss(node: SimNode): void {
    const {chance, faults} = this.#setting;
    if (faults.preemption > 0) {
      const hours = -Math.log(1 - chance.next()) / faults.preemption;
      this.#setting.after(hours * 60 * MINUTE_MS, () => this.#isThere(node) && this.#take(node));
    }
    if (!chance.happens(faults.repair)) return;
    this.#setting.after(this.#setting.minutes(1, 20), () => {
      if (!this.#isThere(node) || node.state !== 'READY') return;
      node.state = chance.pick(['REPAIRING', 'RESTARTING', 'REIMAGING']);
      this.#setting.seen.add(node.state);
      this.#setting.after(this.#setting.minutes(1, 15), () => {
        if (['REPAIRING', 'RESTARTING', 'REIMAGING'].includes(node.state)) node.state = 'READY';
      });
    });
  }

  #isThere(node: SimNode): boolean {
    return this.#setting.tpus.nodes.get(node.name) === node && !this.#setting.isCalm;
  }

  #take(node: SimNode): void {
    const setting = this.#setting;
    const {notice, vanish, deaf} = setting.faults;
    setting.seen.add('preemption');
    setting.note(() => `${node.name} is taken away`);
    if (setting.strikes('notice', notice)) void this.#machines.get(node)?.agent.preempted();
    if (setting.strikes('vanish', vanish)) {
      setting.tpus.remove(node);
      return;
    }
    if (setting.strikes('deaf', deaf)) {
      this.#end(node, 'it hangs, and its node stays READY');
      return;
    }
    setting.after(setting.chance.between(0, 30_000), () => {
      if (!this.#isThere(node) || node.state === 'DELETING') return;
      node.state = setting.chance.pick(['PREEMPTED', 'PREEMPTED', 'TERMINATED', 'STOPPED']);
      setting.seen.add(node.state);
      this.#end(node, node.state);
    });
  }

  /** The machine of the node stops; or it works on for a while and does not know that it is none any more. */
  #end(node: SimNode, why: string): void {
    const machine = this.#machines.get(node);
    if (!machine) return;
    this.#machines.delete(node);
    this.#setting.note(() => `${node.name} ends: ${why}`);
    const end = () => {
      machine.process.isDead = true;
    };
    if (this.#setting.strikes('zombie', this.#setting.faults.zombie))
      this.#setting.after(this.#setting.minutes(1, 25), end);
    else end();
  }

  /** A request over the network: it may not arrive, its answer may not, and its function may die meanwhile. */
  #ask(from: Process, body: object): Promise<Answer> {
    const setting = this.#setting;
    return new Promise(resolve => {
      // A promise that is settled takes no second answer.
      const answer = (given: Answer) => from.isDead || resolve(given);
      setting.after(this.#functions.latency(), () => {
        if (from.isDead) return;
        if (setting.strikes('request lost', setting.faults.refusal)) {
          answer({status: 503, body: {}});
          return;
        }
        const process = this.#functions.instance();
        setting.note(() => `${from.name} asks ${process.name} ${JSON.stringify(body)}`);
        const response = {
          statusCode: 0,
          status: (status: number) => Object.assign(response, {statusCode: status}),
          json: (json: object) => {
            if (setting.strikes('answer lost', setting.faults.silence)) return;
            setting.invariants.onAnswer(body, json);
            answer({status: response.statusCode, body: JSON.parse(JSON.stringify(json))});
          },
        };
        workerApi(this.#functions.deps(process), {body} as Request, response as unknown as Response).catch(
          error => {
            setting.note(() => `${process.name} fails: ${error.message}`);
            setting.invariants.onFailure(error);
            answer({status: 500, body: {}});
          },
        );
      });
      setting.after(REQUEST_TIMEOUT_MS, () => answer({status: 504, body: {}}));
    });
  }
}
