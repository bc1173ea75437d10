"""The host of a TPU without its chips: the worker's pipeline behind devices of zero time: `npm run bench:host`."""
