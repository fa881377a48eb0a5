"""Renders chat templates as transformers does, every conversation with every template.

Of our own templates the texts are committed. Of everyone else's, which are not ours to carry, only hashes are:
`make.py show NAME TITLE` prints the text behind one.
"""

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path

import jinja2
from gguf import GGUFReader
from transformers.utils import chat_template_utils

import public_templates
import vocabulary

ROOT = Path(__file__).parents[2] / "crates/text/tests/goldens/templates"
NOW = datetime(2026, 11, 30, 12, 34, 56)

# The templates inside the model files, and what each calls its special tokens.
MODEL_TEMPLATES = {
    "smollm2-135m-instruct": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
    "qwen2.5-coder-0.5b-instruct": {"eos_token": "<|im_end|>"},
    "qwen2.5-coder-1.5b-instruct": {"eos_token": "<|im_end|>"},
}
# For all other templates.
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

# What a template must not reach, and what the sandbox must refuse.
SANDBOX = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ dict.mro() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ '{0.__class__}'.format('x') }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ (messages | map(attribute='__class__') | list)[0] }}",
    "{% include '/etc/hostname' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% from 'os' import environ %}{{ environ }}",
    "{% extends 'base.html' %}",
    "{{ range(1000000000) | length }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ environ }}|{{ os }}|{{ open }}|{{ config }}|{{ request }}",
    "{{ open('/etc/hostname') }}",
    "{{ undefined_function() }}",
    "{{ nothing.at.all }}",
    "{{ nothing.one is defined }}",
    "{{ messages[99] }}|{{ messages[0].nothing }}",
    "{{ messages[99].role }}",
    "{% unknown %}",
    "{{ unclosed",
    "{{ 'x' | no_such_filter }}",
    "{{ raise_exception('plain sentence') }}",
    "{% set ns = namespace(a=1) %}{% set ns.__class__ = 2 %}{{ ns.a }}",
]


class FixedClock(datetime):
    """`strftime_now` asks for the time; goldens must not change with it."""

    @classmethod
    def now(cls, tz=None):
        return NOW


def render(template: str, conversation: dict, special_tokens: dict) -> dict:
    """What transformers' `apply_chat_template(tokenize=False)` returns or raises."""
    kwargs = dict(conversation.get("kwargs", {}))
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[chat_template_utils._normalize_chat_messages(conversation["messages"])],
            tools=conversation.get("tools"),
            documents=kwargs.pop("documents", None),
            chat_template=template,
            continue_final_message=conversation.get("continue_final_message", False),
            add_generation_prompt=conversation.get("add_generation_prompt", False),
            **(special_tokens | kwargs),
        )
        return {"expected": rendered[0]}
    except Exception as error:
        # Only `raise_exception` raises this class itself; its sentence is the template's own and must come through.
        key = "raised" if type(error) is jinja2.exceptions.TemplateError else "error"
        text = str(error) if key == "raised" else f"{type(error).__name__}: {error}"
        return {key: re.sub(r"0x[0-9a-f]+", "0x", text)}


def write(path: Path, value) -> None:
    """One line an entry of `renders`, so that a change shows as the entries it touches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: item for key, item in value.items() if key != "renders"}
    lines = [f" {json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in head.items()]
    renders = [
        f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(item)}" for name, item in value["renders"].items()
    ]
    lines.append(' "renders": {\n' + ",\n".join(renders) + "\n }")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def others() -> dict:
    """Templates that others wrote, by name: their text and their special tokens."""
    found = {}
    for name, special_tokens in MODEL_TEMPLATES.items():
        fields = GGUFReader(vocabulary.MODELS / f"{name}.gguf").fields
        found[f"model/{name}"] = (fields["tokenizer.chat_template"].contents(), special_tokens)
    for path in sorted(public_templates.fetch().glob("*.jinja")):
        found[f"public/{path.stem}"] = (path.read_bytes().decode(), SPECIAL_TOKENS)
    return found


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_hashes(conversations: dict) -> None:
    """One line a template: what stands at a conversation's place is the text's hash, or that there is none and why."""
    lines = []
    for name, (template, special_tokens) in others().items():
        renders = [render(template, chat, special_tokens) for chat in conversations.values()]
        renders = [digest(outcome["expected"]) if "expected" in outcome else next(iter(outcome)) for outcome in renders]
        entry = {"template": digest(template), "special_tokens": special_tokens, "renders": renders}
        lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")
    (ROOT / "hashes.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} templates of others", flush=True)


def show(name: str, title: str) -> None:
    chat_template_utils.datetime = FixedClock
    template, special_tokens = others()[name]
    conversations = json.loads((ROOT / "conversations.json").read_text())
    print(next(iter(render(template, conversations[title], special_tokens).values())), end="")


def main() -> None:
    chat_template_utils.datetime = FixedClock
    conversations = json.loads((ROOT / "conversations.json").read_text())
    counts = {"expected": 0, "raised": 0, "error": 0}
    for path in sorted(ROOT.glob("own/*.jinja")):
        template = path.read_bytes().decode()
        renders = {title: render(template, chat, SPECIAL_TOKENS) for title, chat in conversations.items()}
        for outcome in renders.values():
            counts[next(iter(outcome))] += 1
        head = {"template": f"own/{path.name}", "special_tokens": SPECIAL_TOKENS}
        write(ROOT / "renders" / f"own-{path.stem}.json", head | {"renders": renders})
    write_hashes(conversations)
    chat = conversations["system and user"]
    refused = {template: render(template, chat, {}) for template in SANDBOX}
    write(ROOT / "renders" / "sandbox.json", {"messages": chat["messages"], "renders": refused})
    print(f"{len(list((ROOT / 'renders').glob('*.json')))} files, {counts}", flush=True)


if __name__ == "__main__":
    main()
