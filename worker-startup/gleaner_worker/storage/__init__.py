"""Cloud Storage and the disk of a VM."""
