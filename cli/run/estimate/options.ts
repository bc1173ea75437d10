import type {Where} from '../../cloud/connect.ts';

/** Options of `gleaner estimate`. */
export type EstimateOptions = Where & {
  json?: boolean;
  spec?: string;
  model?: string;
  accelerator: string;
  zone: string;
  workers: number;
  sampleBytes: number;
  tokensPerSecond?: number;
  quick?: boolean;
  like?: string;
};
