"""From the lines of a stream to samples."""
