"""Renders chat templates as transformers does, every conversation with every template, and commits the texts."""

import json
import re
from datetime import datetime
from pathlib import Path

import jinja2
from gguf import GGUFReader
from transformers.utils import chat_template_utils

import vocabulary

ROOT = Path(__file__).parents[2] / "crates/text/tests/goldens/templates"
NOW = datetime(2026, 11, 30, 12, 34, 56)

# Templates stored in the model files, laid out beside the public ones so that tests read them without a model.
MODEL_TEMPLATES = ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"]

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


def extract_model_templates() -> None:
    for name in MODEL_TEMPLATES:
        fields = GGUFReader(vocabulary.MODELS / f"{name}.gguf").fields
        path = ROOT / "model" / f"{name}.jinja"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fields["tokenizer.chat_template"].contents().encode())


def main() -> None:
    chat_template_utils.datetime = FixedClock
    extract_model_templates()
    conversations = json.loads((ROOT / "conversations.json").read_text())
    origins = json.loads((ROOT / "origins.json").read_text())
    counts = {"expected": 0, "raised": 0, "error": 0}
    for path in sorted(ROOT.glob("*/*.jinja")):
        name = str(path.relative_to(ROOT).with_suffix(""))
        template = path.read_bytes().decode()
        own = {"origin": "written for this project", "licence": "Apache-2.0"}
        entry = origins.get(name, own | {"special_tokens": {"bos_token": "<s>", "eos_token": "</s>"}})
        renders = {title: render(template, chat, entry["special_tokens"]) for title, chat in conversations.items()}
        for outcome in renders.values():
            counts[next(iter(outcome))] += 1
        path = ROOT / "renders" / f"{name.replace('/', '-')}.json"
        write(path, {"template": f"{name}.jinja"} | entry | {"renders": renders})
    chat = conversations["system and user"]
    refused = {template: render(template, chat, {}) for template in SANDBOX}
    write(ROOT / "renders" / "sandbox.json", {"messages": chat["messages"], "renders": refused})
    print(f"{len(list((ROOT / 'renders').glob('*.json')))} files, {counts}", flush=True)


if __name__ == "__main__":
    main()
