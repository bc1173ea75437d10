"""`npm run bench:tpu`: the program of the extractor, judged by the TPU compiler."""
