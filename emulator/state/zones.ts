/** Zones that have TPUs. */
export const zones = [
  ...[
    'us-central1-a',
    'us-central1-b',
    'us-central1-c',
    'us-central1-f',
    'us-central2-b',
    'us-east1-b',
    'us-east1-d',
  ],
  ...['us-east5-a', 'us-east5-b', 'us-east5-c', 'us-west1-a', 'us-west1-c', 'us-west4-a', 'us-south1-a'],
  // AI zones, which hold accelerators alone.
  ...['us-central1-ai1a', 'us-south1-ai1b'],
  ...['europe-west4-a', 'europe-west4-b', 'asia-northeast1-b'],
];
