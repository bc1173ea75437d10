/** Default port and folder of `gleaner local up`, where the other commands look for a local cloud. */
export const DEFAULT_PORT = 8790;
export const DEFAULT_DIR = '.gleaner/local';
