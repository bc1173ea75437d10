"""The code and the environment of jobs on this host: sources, setup scripts and JAX versions."""
