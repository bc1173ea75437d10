/** Event of the timeline: a change that people read about. The store keeps it for 30 days. */
export type TimelineEvent = {
  kind: 'run' | 'stream' | 'shard' | 'worker' | 'zone' | 'rejected' | 'control' | 'job' | 'exec';
  text: string;
  run?: string;
  stream?: string;
  worker?: string;
  job?: string;
  exec?: string;
  /** Epoch of the lease that the event is about. */
  epoch?: number;
  /** Control message that the event is about. */
  message_id?: string;
  object?: string;
  /** Events with the same words here are one event, with the text and the time of the last. */
  fold?: string | undefined;
};
