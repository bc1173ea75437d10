/** Translates resources of the Cloud TPU API v2 into the port's `Tpu`, and a request into a node of the API. */
import type {protos} from '@google-cloud/tpu';
import type {Tpu, TpuRequest} from '../ports/ports.ts';
import {queuedFailure, reasonOf} from './errors.ts';

export const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';
const MOST_DETAILS = 500;
export const UNSPECIFIED = 'STATE_UNSPECIFIED';

export type Words = Record<'state' | 'health' | 'symptom' | 'queued' | 'initiator', Record<number, string>>;

export type NodeSettings = {
  /** Service account of the nodes; by default that of Compute Engine. */
  service_account?: string | undefined;
  /** Names or paths of a network and its subnetwork; by default those that are called `default`. */
  network?: {network?: string; subnetwork?: string; external_ips: boolean};
};

export function nodeFor(request: TpuRequest, {service_account, network}: NodeSettings) {
  const {accelerator, runtime_version, labels, metadata} = request;
  const {external_ips = false, ...names} = network ?? {};
  return {
    acceleratorType: accelerator,
    runtimeVersion: runtime_version,
    labels,
    metadata,
    networkConfig: {...names, enableExternalIps: external_ips},
    ...(service_account ? {serviceAccount: {email: service_account, scope: [SCOPE]}} : {}),
  };
}

type Node = protos.google.cloud.tpu.v2.INode;
type QueuedResource = protos.google.cloud.tpu.v2.IQueuedResource;

export function joined(nodes: Node[], queuedResources: QueuedResource[], words: Words): Tpu[] {
  const tpus = new Map<string, Tpu>();
  for (const node of nodes) {
    const tpu = tpuOf(node, words);
    tpus.set(`${tpu.zone}/${tpu.name}`, tpu);
  }
  for (const resource of queuedResources) {
    const {name, zone} = placeOf(resource.name);
    const queued = queuedOf(resource, words);
    const bare: Tpu = {
      ...{name, zone, state: null, health: 'HEALTH_UNSPECIFIED', labels: queued.labels, symptoms: []},
      ...{queued, created_at: instantOf(resource.createTime)},
    };
    tpus.set(`${zone}/${name}`, {...(tpus.get(`${zone}/${name}`) ?? bare), queued});
  }
  return [...tpus.values()];
}

function tpuOf(node: Node, words: Words): Tpu {
  return {
    ...placeOf(node.name),
    state: wordOf(node.state, words.state) ?? UNSPECIFIED,
    health: wordOf(node.health, words.health) ?? 'HEALTH_UNSPECIFIED',
    labels: {...node.labels},
    symptoms: (node.symptoms ?? []).map(({symptomType, details, createTime}) => ({
      symptom: wordOf(symptomType, words.symptom) ?? 'SYMPTOM_TYPE_UNSPECIFIED',
      details: (details ?? '').slice(0, MOST_DETAILS).toWellFormed(),
      created_at: instantOf(createTime),
    })),
    queued: null,
    created_at: instantOf(node.createTime),
  };
}

function queuedOf({state, tpu, queueingPolicy}: QueuedResource, words: Words): NonNullable<Tpu['queued']> {
  const error = state?.failedData?.error;
  return {
    state: wordOf(state?.state, words.queued) ?? UNSPECIFIED,
    initiator: wordOf(state?.stateInitiator, words.initiator) ?? 'STATE_INITIATOR_UNSPECIFIED',
    error: error ? {kind: queuedFailure(error), message: reasonOf(error).toWellFormed()} : null,
    valid_until_at: queueingPolicy?.validUntilTime ? instantOf(queueingPolicy.validUntilTime) : null,
    labels: {...tpu?.nodeSpec?.[0]?.node?.labels},
  };
}

function placeOf(path: string | null | undefined): {name: string; zone: string} {
  const [, , , zone = '', , name = ''] = (path ?? '').split('/');
  return {name, zone};
}

function instantOf(time: protos.google.protobuf.ITimestamp | null | undefined): string {
  const {seconds = 0, nanos = 0} = time ?? {};
  return new Date(Number(seconds) * 1000 + Math.floor((nanos ?? 0) / 1e6)).toISOString();
}

/** The name of an enum value: gRPC gives names, REST and operations give numbers. Unknown numbers have no name. */
export function wordOf(value: unknown, names: Record<number, string>): string | undefined {
  if (typeof value === 'string' && !/^\d+$/.test(value)) return value;
  return names[Number(value ?? 0)];
}
