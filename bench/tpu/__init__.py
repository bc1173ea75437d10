"""`npm run bench:tpu`: the program of the extractor, measured with the TPU compiler."""
