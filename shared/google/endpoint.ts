/** Options of a Google API client that make it speak plain HTTP to `endpoint`, with the token of the local cloud as its key. */
export function clientOptionsFor(endpoint: string | undefined, token = 'none') {
  if (!endpoint) return {};
  const {protocol, hostname, port} = new URL(endpoint);
  return {
    fallback: true,
    protocol: protocol.slice(0, -1),
    apiEndpoint: hostname,
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
    // With a key the client does not go looking for real credentials.
    apiKey: token,
  };
}
