"""The official Python client, unchanged, against a real server on SmolLM2-135M-Instruct."""

import unittest

import openai

from server import Server

CHAT = [{"role": "user", "content": "Name three colours of the rainbow."}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--api-key", "sk-test")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="sk-test", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0, "SIGTERM ends the server cleanly"

    def chat(self, **arguments):
        defaults = {"model": self.model, "messages": CHAT, "temperature": 0, "max_tokens": 16}
        return self.client.chat.completions.create(**{**defaults, **arguments})

    def streamed(self, **arguments):
        """The text, finish reasons and usage of a stream, by index."""
        text, finishes, usage = {}, {}, None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}, **arguments):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text[choice.index] = text.get(choice.index, "") + (choice.delta.content or "")
                if choice.finish_reason:
                    self.assertNotIn(choice.index, finishes, "one finish per choice")
                    finishes[choice.index] = choice.finish_reason
        return text, finishes, usage

    def test_whole_and_streamed_answers_are_equal(self):
        whole = self.chat()
        text, finishes, usage = self.streamed()
        self.assertEqual(text[0], whole.choices[0].message.content)
        self.assertEqual(finishes[0], whole.choices[0].finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_max_tokens_ends_with_length(self):
        answer = self.chat(max_tokens=3)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_max_completion_tokens_wins_over_max_tokens(self):
        self.assertEqual(self.chat(max_tokens=9, max_completion_tokens=4).usage.completion_tokens, 4)

    def test_stop_strings_end_the_answer_before_them(self):
        full = self.chat(max_tokens=24).choices[0].message.content
        stop = full[6:10]
        answer = self.chat(max_tokens=24, stop=[stop])
        self.assertEqual(answer.choices[0].message.content, full[: full.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(self.streamed(max_tokens=24, stop=stop)[0][0], full[: full.index(stop)])

    def test_several_choices_are_complete_and_reproducible(self):
        arguments = {"n": 3, "temperature": 1.0, "seed": 7}
        whole = self.chat(**arguments)
        text, finishes, usage = self.streamed(**arguments)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2])
        self.assertEqual([text[index] for index in range(3)], [c.message.content for c in whole.choices])
        self.assertEqual(len(finishes), 3)
        self.assertEqual(len(set(text.values())), 3, "choices differ from each other")
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_seeds_reproduce_and_differ(self):
        def text(seed):
            return self.chat(temperature=1.0, seed=seed).choices[0].message.content

        self.assertEqual(text(1), text(1))
        self.assertNotEqual(text(1), text(2))

    def test_logprobs_are_of_the_chosen_tokens(self):
        choice = self.chat(logprobs=True, top_logprobs=3).choices[0]
        entries = choice.logprobs.content
        joined = b"".join(bytes(entry.bytes) for entry in entries).decode()
        self.assertTrue(joined.startswith(choice.message.content))
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token, "greedy takes the best")

    def test_logit_bias_and_penalties_have_an_effect(self):
        plain = self.chat(max_tokens=48).choices[0].message.content
        penalized = self.chat(max_tokens=48, frequency_penalty=2, presence_penalty=2)
        self.assertNotEqual(plain, penalized.choices[0].message.content)
        forced = self.chat(logit_bias={"504": 100}, max_tokens=4).choices[0].message.content
        self.assertEqual(len(set(forced.split())), 1)

    def test_completions_take_text_lists_and_ids(self):
        create = self.client.completions.create
        text = create(model=self.model, prompt="1, 2, 3, 4,", max_tokens=6, temperature=0)
        both = create(model=self.model, prompt=["1, 2, 3, 4,", "A, B, C,"], max_tokens=6, temperature=0)
        self.assertEqual(both.choices[0].text, text.choices[0].text)
        self.assertEqual([choice.index for choice in both.choices], [0, 1])
        echoed = create(model=self.model, prompt="1, 2, 3, 4,", max_tokens=6, temperature=0, echo=True)
        self.assertEqual(echoed.choices[0].text, "1, 2, 3, 4," + text.choices[0].text)
        pieces = create(model=self.model, prompt="1, 2, 3, 4,", max_tokens=6, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in pieces), text.choices[0].text)

    def test_tools_are_accepted_and_rendered(self):
        tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
        self.assertTrue(self.chat(tools=[tool]).choices[0].message.content is not None)

    def test_errors_are_the_clients_own_classes(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="no-such-model")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "word " * 20_000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.server.url + "/v1", api_key="sk-wrong", max_retries=0).models.list()

    def test_the_account_of_an_answer_sums_to_its_end_to_end_time(self):
        answer = self.chat(extra_body={"include_lifecycle": True})
        account = answer.model_extra["lifecycle"]
        self.assertEqual(sum(charge["ns"] for charge in account["stages"]), account["e2e_ns"])
        closed = self.client.get(f"/requests/{account['id']}/lifecycle", cast_to=object)
        self.assertEqual(sum(charge["ns"] for charge in closed["stages"]), closed["e2e_ns"])
        self.assertEqual(sum(gap["ns"] for token in closed["tokens"] for gap in token["gap"]), closed["e2e_ns"])
        self.assertEqual(closed["prompt"]["tokens"], answer.usage.prompt_tokens)
        self.assertNotIn("unattributed", {charge["stage"] for charge in closed["stages"]})


if __name__ == "__main__":
    unittest.main()
