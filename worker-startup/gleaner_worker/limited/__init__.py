"""Processes with limits of memory and time, which read what an outsider has written."""
