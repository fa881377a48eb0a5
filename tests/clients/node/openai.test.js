// The official Node client, unchanged, against a real server on SmolLM2-135M-Instruct.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import OpenAI from "openai";

const root = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../../..");
const binary = process.env.FIRSTLIGHT_BIN ?? path.join(root, "target/release/firstlight");
const messages = [{ role: "user", content: "Name three colours of the rainbow." }];
let server;
let client;
let model;

before(async () => {
  const flags = ["serve", "smollm2-135m-instruct", "--port", "0", "--api-key", "sk-test"];
  server = spawn(binary, flags, { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: server.stdout })) {
    const url = line.match(/http:\/\/\S+/)?.[0];
    if (url) {
      client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sk-test", maxRetries: 0 });
      break;
    }
  }
  model = (await client.models.list()).data[0].id;
});

after(async () => {
  server.kill("SIGTERM");
  const [code] = await once(server, "exit");
  assert.equal(code, 0, "SIGTERM ends the server cleanly");
});

const chat = (more) => ({ model, messages, temperature: 0, max_tokens: 16, ...more });

test("whole and streamed answers are equal", async () => {
  const whole = await client.chat.completions.create(chat());
  const stream = await client.chat.completions.create(chat({ stream: true, stream_options: { include_usage: true } }));
  let text = "";
  let usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  // The second finds what the first has computed: the prompt's full blocks of 16 tokens.
  const { prompt_tokens_details: found, ...counts } = usage;
  const { prompt_tokens_details: before, ...wholeCounts } = whole.usage;
  assert.deepEqual(counts, wholeCounts);
  assert.equal(found.cached_tokens, Math.floor((counts.prompt_tokens - 1) / 16) * 16);
  assert.ok(before.cached_tokens <= found.cached_tokens);
});

test("the client's own stream helper accumulates the answer", async () => {
  const runner = client.chat.completions.stream(chat({ n: 2, temperature: 1, seed: 3 }));
  const final = await runner.finalChatCompletion();
  assert.deepEqual(final.choices.map((choice) => choice.index), [0, 1]);
  for (const choice of final.choices) assert.ok(choice.finish_reason);
});

test("an aborted stream gives its place back", async () => {
  const controller = new AbortController();
  const request = client.chat.completions.create(
    chat({ stream: true, max_tokens: 2000, logit_bias: { 504: 100 } }),
    { signal: controller.signal },
  );
  let chunks = 0;
  await assert.rejects(async () => {
    for await (const _ of await request) if (++chunks === 3) controller.abort();
    throw new OpenAI.APIUserAbortError();
  });
  for (let tries = 0; ; tries++) {
    const state = await client.get("/models/" + model);
    if (state) break;
    assert.ok(tries < 100);
  }
  assert.equal((await client.chat.completions.create(chat({ max_tokens: 2 }))).usage.completion_tokens, 2);
});

test("completions stream", async () => {
  const prompt = "1, 2, 3, 4,";
  const whole = await client.completions.create({ model, prompt, max_tokens: 6, temperature: 0 });
  let text = "";
  const stream = await client.completions.create({ model, prompt, max_tokens: 6, temperature: 0, stream: true });
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, whole.choices[0].text);
});

test("errors are the client's own classes", async () => {
  await assert.rejects(client.chat.completions.create(chat({ top_p: 2 })), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "top_p");
    return true;
  });
  await assert.rejects(client.chat.completions.create(chat({ model: "nobody" })), OpenAI.NotFoundError);
});
