// Prints the JSON Schema that VS Code has for .vscode/mcp.json, from VS Code's own sources as a package ships them.
//
//     node vscode_schema.mjs NODE_MODULES
import { pathToFileURL } from "node:url";

const sources = `${process.argv[2]}/@codingame/monaco-vscode-api/vscode/src`;
const { mcpServerSchema } = await import(
  pathToFileURL(`${sources}/vs/workbench/contrib/mcp/common/mcpConfiguration.js`)
);
console.log(JSON.stringify(mcpServerSchema));
