"""The token sequences that logits are compared on. Texts are this project's own."""

import json
from pathlib import Path

import vocabulary
from template_goldens import ROOT as TEMPLATES
from template_goldens import render

LONG_TOKENS = 900
LONG_REPEATS_AFTER = 620  # farther than Gemma's window of 512

ENGLISH = (
    "The lighthouse keeper counted the ships every evening and wrote the number in a blue book. On clear "
    "days there were seven or eight of them; in fog he counted the horns instead. When the new lamp "
    "arrived in 1911, he complained that it was too bright, that it kept the birds awake, and that nobody "
    "had asked him. Two years later he could not imagine the coast without it, and he told every visitor "
    "that the lamp had been his idea from the very beginning."
)

CHINESE = (
    "春天来了，河边的柳树长出了新叶。小镇上的人们早早起床，打开店门，准备迎接第一批客人。卖豆腐的老王"
    "已经在街角站了二十年，他说做豆腐最重要的是水，其次是耐心。孩子们背着书包跑过石桥，桥下的水慢慢地"
    "流向远方。到了中午，太阳晒得石板发烫，大家都躲进茶馆里，一边喝茶一边谈论今年的收成和明年的打算。"
)

CODE = '''def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping intervals; the input need not be sorted."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


if __name__ == "__main__":
    assert merge_intervals([(5, 7), (1, 3), (2, 4)]) == [(1, 4), (5, 7)]
    print("ok")
'''

JSON = json.dumps(
    {
        "id": "req_0192",
        "created": 1764506096,
        "user": {"name": "Zoë", "age": 37, "tags": ["admin", "beta"], "active": True, "score": 98.25},
        "items": [{"sku": f"A-{index:03}", "count": index * 2, "price": index + 0.5} for index in range(1, 5)],
        "note": None,
    },
    ensure_ascii=False,
    indent=1,
)

MIXED = (
    "Привет! 👋 Ça va bien? 日本語も少し。 $E = mc^2$ — 25 °C ≈ 77 °F; see https://example.org/a?b=1#c … "
    "\tنعم، شكرا. 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,"
)

CHAT = [
    {"role": "system", "content": "You are a terse assistant."},
    {"role": "user", "content": "Name three rivers of Europe."},
    {"role": "assistant", "content": "Danube, Rhine, Volga."},
    {"role": "user", "content": "Which of them is the longest, and how long is it?"},
]
ANSWER = "The Volga is the longest of the three. It is about 3,530 kilometres long and flows into the Caspian Sea."

ROOMS = [
    "a brass telescope with a cracked lens, two maps of the northern sea, and a letter signed by a "
    "captain Morel",
    "eleven clocks, of which only the smallest still runs; the guard winds it on Fridays and sets it by "
    "the train",
    "a stuffed heron, a tray of beetles sorted by colour, and a drawer of labels that belong to nothing "
    "any more",
    "the skeleton of a horse, life size, missing its left foreleg, which was lent to a school in 1932 and "
    "never returned",
    "paintings of the harbour by four different hands; the best of them is unsigned and hangs behind the "
    "door",
    "coins in a glass case, mostly copper, one of them gold and, according to the catalogue, certainly "
    "false",
    "a loom, three spindles, a basket of undyed wool and the photograph of a woman who knew how to use "
    "them",
    "books on bees, on locks, on the repair of organs, and one on the history of this very collection, "
    "uncut",
    "an iron stove with tiles from Delft, blue on white, showing the months of the year; October is "
    "missing",
    "nothing at all, except for a chair beside the window, from which the whole valley can be seen in "
    "winter",
    "a model of the bridge as it was first proposed, with nine arches, next to a model of the bridge as "
    "built, with five",
    "uniforms, moth-eaten, and a drum that children are allowed to beat once a year on the day of the "
    "founding",
    "the bell of a ship, green with age, engraved with a name that nobody in the town is able to read",
    "pressed flowers from the mountains, each with a date, a height above the sea and the initials of the "
    "finder",
    "a cabinet of minerals: quartz, fluorite, galena, cinnabar, and a meteorite the size of a fist",
    "letters of the founder to her sister, tied with a red ribbon, to be opened a hundred years after her "
    "death",
    "tools of a cooper, tools of a saddler, tools of a clockmaker, all of them clean, oiled and ready for "
    "work",
    "masks of painted wood for the winter procession, each with its own name and its own temper",
    "a barometer that has predicted storm since the war, and a chart on which somebody kept count of its "
    "errors",
    "the ledger of the mill, four volumes, in which flour, rain, births and debts are noted in the same "
    "hand",
    "a globe without Antarctica, a globe without Australia, and a sphere of blank paper waiting to be "
    "drawn on",
    "a piano without strings, on which a composer of some fame is said to have learned to play without "
    "being heard",
]

LONG = "Inventory of the old museum, written down room by room before the building was closed for repairs. " + " ".join(
    f"Room {number}: {things}." for number, things in enumerate(ROOMS, start=1)
)

# Gemma's base model has no chat template; its tokens for turns exist, and a right engine handles them all the same.
GEMMA_TURN = "<start_of_turn>{role}\n{content}<end_of_turn>\n"


def chat_text(name: str) -> str:
    if name.startswith("gemma"):
        turns = [GEMMA_TURN.format(**message) for message in CHAT if message["role"] == "user"]
        return "".join(turns) + "<start_of_turn>model\n" + ANSWER
    template = (TEMPLATES / "model" / f"{name}.jinja").read_bytes().decode()
    return render(template, {"messages": CHAT, "add_generation_prompt": True}, {})["expected"] + ANSWER


def sequences(name: str, vocab: vocabulary.Vocabulary, tokenizer) -> dict[str, list[int]]:
    """Token ids by prompt, as the model would get them: special tokens parsed, BOS where the file asks for it."""
    texts = {"english": ENGLISH, "chinese": CHINESE, "code": CODE, "json": JSON, "mixed": MIXED}
    texts["chat"] = chat_text(name)
    tokenizer.encode_special_tokens = False

    def encode(text: str) -> list[int]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return [vocab.bos] + ids if vocab.add_bos else ids

    result = {prompt: encode(text) for prompt, text in texts.items()}
    long = encode(LONG)[:LONG_REPEATS_AFTER]
    assert len(long) == LONG_REPEATS_AFTER, (name, len(long))
    result["long"] = (long + long[1:])[:LONG_TOKENS]
    return result


def family_of(name: str) -> str:
    return {"smollm2": "smollm2", "gemma-3": "gemma3", "qwen2.5": "qwen2"}[name[:7]]
