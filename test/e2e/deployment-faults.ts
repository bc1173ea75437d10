/** Faults for two deployments in one project. Each wait ends with the fact that it waits for. */
import assert from 'node:assert/strict';
import type {RunState} from '../../client/views/run-state.ts';
import {until} from '../support/machine/until.ts';
import type {Documents, SharedProject, TeamDeployment} from './shared-project.ts';

export const ZONE = 'us-central1-a';
export const LABEL = 'gleaner-deployment';
export const ROUNDS = Number(process.env.GLEANER_ROUNDS ?? 1);

type Loss = 'vanish' | 'preempt';

/** A deployment and its run. */
export type Side = {
  deployment: TeamDeployment;
  run: string;
  /** Matches the names of nodes, runs, topics and buckets of the other deployment. */
  foreign: RegExp;
  /** A node with the label of the deployment that fits no slot. */
  stray: string;
};

export class DeploymentFaults {
  readonly #project: SharedProject;
  /** Faults of nodes, as `preempt north`. */
  readonly nodes: string[] = [];
  /** Operations of Cloud TPU that a person asked for. */
  readonly asked: string[] = [];
  /** Documents of the south before the loss of its store. */
  lost: Documents = {};

  constructor(project: SharedProject) {
    this.#project = project;
  }

  async refuseCreates(): Promise<void> {
    await this.#breakEvents();
    await this.#project.cloud.fault('stockout', ZONE);
  }

  /** Allows creates after Cloud TPU has refused one of each deployment. */
  async allowCreates(sides: Side[]): Promise<void> {
    for (const {deployment, run} of sides)
      await until(
        `a refused create for ${run}`,
        async () => JSON.stringify(deployment.documents()),
        text => text.includes('no more capacity'),
      );
    await this.#project.cloud.fault('clear', 'stockout');
  }

  async disturb(north: Side, south: Side): Promise<void> {
    const {status, action} = await this.#askElsewhere(north, south);
    assert.ok(status >= 400 || action === 'wait', `worker-api of the south answered ${status} ${action}`);
    await Promise.all([this.#disturbNorth(north), this.#disturbSouth(south)]);
  }

  async #disturbNorth(north: Side): Promise<void> {
    await whenSeen('a shard', north, hasShard);
    await north.deployment.publish({action: 'rebuild'});
    for (let round = 0; round < ROUNDS; round++)
      for (const loss of lossesOf(north, round)) await this.#breakNode(north, loss);
  }

  async #disturbSouth(south: Side): Promise<void> {
    await whenSeen('a shard', south, hasShard);
    for (let round = 0; round < ROUNDS; round++) {
      for (const loss of lossesOf(south, round)) await this.#breakNode(south, loss);
      if (round === 0) this.lost = await this.#loseStore(south);
    }
  }

  /** Doubles, reorders and drops events of both deployments. A dropped control message would be lost: its sender repeats it. */
  async #breakEvents(): Promise<void> {
    const {cloud} = this.#project;
    await cloud.fault('double', 'all=0.3');
    await cloud.fault('reorder', 'all=0.3');
    for (const topic of ['object', 'tpu', 'tick', 'tasks', 'team-b-tpu', 'team-b-tick', 'team-b-tasks'])
      await cloud.fault('drop', `${topic}=0.2`);
  }

  /** Makes a node with the labels of a deployment, as a person of the project could. */
  async addNode(name: string, deployment: string): Promise<void> {
    const path = `/v2/projects/${this.#project.cloud.project}/locations/${ZONE}/nodes?nodeId=${name}`;
    const {name: operation} = await this.#project.call('POST', path, {
      ...{acceleratorType: 'v5litepod-1', runtimeVersion: 'v2-alpha-tpuv5-lite'},
      labels: {'managed-by': 'gleaner', [LABEL]: deployment},
    });
    this.asked.push(operation);
  }

  /** Breaks the node of a worker at work, and waits until the loss is known. A run that is over has no such worker. */
  async #breakNode(side: Side, kind: Loss): Promise<void> {
    const found = await whenSeen('a worker at work', side, view => isOver(view) || isWorking(view));
    const [worker] = found?.workers ?? [];
    if (!found || isOver(found) || !worker) return;
    await this.#project.cloud.fault(kind, worker.name);
    this.nodes.push(`${kind} ${side.run}`);
    const isLost = ({workers}: RunState) =>
      workers.every(({phase, incarnation}) => phase === 'deleting' || incarnation > worker.incarnation);
    await whenSeen(`the end of incarnation ${worker.incarnation}`, side, isLost);
  }

  /** Deletes the store in the middle of the run, and rebuilds it. Returns the documents that were lost. */
  async #loseStore(side: Side): Promise<Documents> {
    const {deployment, run} = side;
    await whenSeen('a worker at work', side, isWorking);
    const lost = deployment.documents();
    deployment.loseStore();
    await deployment.publish({action: 'rebuild'});
    await whenSeen('the pause after the loss', side, view => view.run.status === 'paused');
    await until(
      `the rebuild of ${run}`,
      async () => deployment.documents()[`tasks/rebuild-${run}`],
      task => task?.status === 'done',
    );
    await deployment.publish({action: 'resume', run});
    return lost;
  }

  /**
   * Asks for work at the address of another deployment, as a worker would: with a token of its own VM for this address. Waits until the
   * other deployment has work.
   */
  async #askElsewhere(side: Side, other: Side): Promise<{status: number; action: string | undefined}> {
    const isUp = ({workers}: RunState) => workers.some(({phase}) => phase !== 'creating');
    const found = await whenSeen('a VM', side, isUp);
    const isPending = ({streams}: RunState) => streams.some(({status}) => status === 'pending');
    await whenSeen('a pending stream', other, isPending);
    const [worker] = found?.workers ?? [];
    const {worker_api} = other.deployment;
    const token = await this.#project.identityOf(worker?.name ?? '', worker_api);
    const answer = await fetch(worker_api, {
      method: 'POST',
      headers: {'content-type': 'application/json', authorization: `Bearer ${token}`},
      body: JSON.stringify({
        ...{action: 'lease', worker: worker?.name, incarnation: worker?.incarnation},
        ...{host: 0, loaded: null},
      }),
    });
    const {action} = (await answer.json()) as {action?: string};
    return {status: answer.status, action};
  }
}

/** Losses of nodes of a side in a round: one in the first round, and both in each further round. */
export function lossesOf({run}: Side, round: number): Loss[] {
  if (round > 0) return ['vanish', 'preempt'];
  return run === 'north' ? ['vanish'] : ['preempt'];
}

function whenSeen(
  what: string,
  {deployment, run}: Side,
  done: (view: RunState) => boolean,
): Promise<RunState | undefined> {
  const ask = () => deployment.view(run);
  return until(`${what} of ${run}`, ask, found => found !== undefined && done(found));
}

function hasShard({streams}: RunState): boolean {
  return streams.some(({total_shards}) => total_shards > 0);
}

function isOver({run}: RunState): boolean {
  return run.status !== 'active' && run.status !== 'paused';
}

function isWorking({workers}: RunState): boolean {
  return workers.some(({phase}) => phase === 'working');
}
