// A session of the TypeScript SDK's client with the server: node typescript.mjs NODE_MODULES COMMAND ARG...
// Lists and calls every tool; progress and cancellation are the SDK's own to test.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, command, ...args] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + "/"));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");

const calls = {
  validate_config: { config: "cuda_graph_impl: te", stack: "core=0.19.2" },
  recommend_scope: { workload: { num_layers: 32, hidden_size: 4096, gpu: "h100" } },
  diagnose_error: { text: "AssertionError: RNG tracker does not support cudagraphs!" },
  run_capture_smoke: { preset: "tiny" },
};
const client = new Client({ name: "ci", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: { PATH: "/nowhere", HOME: process.env.HOME } }));
const { tools } = await client.listTools();
for (const tool of tools) {
  const result = await client.callTool({ name: tool.name, arguments: calls[tool.name] });
  if (result.isError || !result.structuredContent) throw new Error(`${tool.name}: ${JSON.stringify(result)}`);
  console.log(`${tool.name}: ${result.content[0].text.split("\n")[0]}`);
}
const bad = await client.callTool({ name: "validate_config", arguments: { konfig: 1 } });
if (!bad.isError) throw new Error("an unknown argument was taken");
console.log(`refused: ${bad.content[0].text}`);
await client.close();
if (tools.length !== Object.keys(calls).length) throw new Error(`${tools.length} tools`);
