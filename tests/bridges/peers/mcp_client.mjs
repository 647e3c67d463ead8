// The JavaScript SDK of MCP as a client: lists the tools of a server and calls one of them.
//
//   node mcp_client.mjs NODE_MODULES < settings.json      {url, name, arguments}
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

let input = '';
for await (const piece of process.stdin) input += piece;
const settings = JSON.parse(input);
const require = createRequire(`${process.argv[2]}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');

const client = new Client({ name: 'peer', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(settings.url)));
const { tools } = await client.listTools();
const result = await client.callTool({ name: settings.name, arguments: settings.arguments });
await client.close();
process.stdout.write(JSON.stringify({ tools, result }));
