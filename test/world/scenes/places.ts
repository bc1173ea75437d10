/** Slots of the test worlds, and settings of small pools. */
export const ZONE = 'us-central1-a';
export const A0 = 'tpu-us-central1-a-0';
export const A1 = 'tpu-us-central1-a-1';
export const B0 = 'tpu-europe-west4-b-0';
export const ONE_SLOT = {GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '1'};
export const TWO_SLOTS = {GLEANER_ZONES: ZONE, GLEANER_WORKERS_PER_ZONE: '2'};
