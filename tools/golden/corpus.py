"""The texts whose token ids are committed as goldens: written by hand first, then generated from a fixed seed."""

import random
import unicodedata

from vocabulary import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, Vocabulary

SEED = 20261130
RANDOM_TEXTS = 5000

LANGUAGES = [
    "The quick brown fox jumps over the lazy dog; it didn't even look back.",
    "Le cœur a ses raisons que l'été n'ignore pas : « ça va ? » — oui, très bien…",
    "Übergrößenträger essen süße Äpfel in der Straßenbahn.",
    "¿Dónde está el niño? ¡Mañana comeremos piñas y jalapeños!",
    "O coração não é só pão e água; amanhã haverá maçãs.",
    "Perché la città è così bella? Però costa già di più.",
    "Zażółć gęślą jaźń, proszę pana.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Árvíztűrő tükörfúrógép a szoba közepén.",
    "Þetta er íslenska með ð, þ og æ.",
    "Hyvää päivää, missä on lähin kauppa?",
    "Pijamalı hasta yağız şoföre çabucak güvendi; İstanbul'da ıslak bir gün.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Щедрий українець їв ґудзики й пʼятнадцять яблук.",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία, είπε ο Γιώργος.",
    "שלום עולם, מה שלומך היום? דּוּגְמָה עם נִקּוּד.",
    "مرحبا بالعالم، كيف حالك اليوم؟ هَذَا نَصٌّ مُشَكَّل ١٢٣٤٥.",
    "سلام دنیا، می‌خواهم بروم به خانه. ۱۲۳",
    "नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय १२३४",
    "বাংলা ভাষায় একটি বাক্য, সংখ্যা ১২৩।",
    "தமிழ் மொழியில் ஒரு வாக்கியம்.",
    "తెలుగులో ఒక వాక్యం.",
    "ಕನ್ನಡದಲ್ಲಿ ಒಂದು ವಾಕ್ಯ.",
    "മലയാളത്തിൽ ഒരു വാക്യം.",
    "ગુજરાતીમાં એક વાક્ય.",
    "ਪੰਜਾਬੀ ਵਿੱਚ ਇੱਕ ਵਾਕ।",
    "සිංහල භාෂාවෙන් වාක්‍යයක්.",
    "สวัสดีชาวโลก วันนี้อากาศดีมาก ๑๒๓",
    "ສະບາຍດີຊາວໂລກ",
    "សួស្តី​ពិភពលោក",
    "မင်္ဂလာပါ ကမ္ဘာကြီး",
    "བཀྲ་ཤིས་བདེ་ལེགས།",
    "გამარჯობა მსოფლიო",
    "Բարեւ աշխարհ, ինչպե՞ս ես։",
    "ሰላም ለዓለም፣ እንዴት ነህ?",
    "你好，世界！今天天气怎么样？我想去北京看一看。",
    "繁體中文：臺灣的鐵路與圖書館。「引號」、『書名』",
    "日本語の文章です。カタカナとｶﾀｶﾅ、ひらがな、漢字が混ざる。",
    "안녕하세요 세계! 오늘은 날씨가 좋네요.",
    "Xin chào thế giới, hôm nay trời đẹp quá, phải không?",
    "Сәлем әлем! Сайн байна уу? ᠮᠣᠩᠭᠣᠯ",
    "ᚠᛇᚻ᛫ᛒᛦᚦ ⠓⠑⠇⠇⠕ ⰀⰁⰂ 𐌰𐌱𐌲 𓀀𓁐 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚",
    "mixed: Hello мир 世界 नमस्ते 🌍 مرحبا x²+y³≤∞ ½¾ ⅷ Ⅻ ①②③ ㊊ ﬁﬂ",
]

EMOJI = [
    "😀😃😄😁",
    "👨‍👩‍👧‍👦 family",
    "👩🏽‍🚀🧑🏿‍🤝‍🧑🏻",
    "🏳️‍🌈🏴‍☠️🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "❤️‍🔥❤️❤",
    "🇫🇷🇩🇪🇯🇵🇺",
    "1️⃣2️⃣#️⃣",
    "☺︎☺️",
    "a😀b😀 c 😀",
    "🤷‍♂️🤷🏼‍♀️ ¯\\_(ツ)_/¯",
    "\u200d\u200d a\u200db\ufe0f \u200b\u200c\u2060\ufeff",
]

CODE = [
    'def f(x):\n    if x > 0:\n        return {"a": [1, 2.5, -3e10]}\n\n    # комментарий\n    return None\n',
    'fn main() -> Result<(), Box<dyn Error>> {\n\tlet v: Vec<&\'static str> = vec!["a"];\n\tprintln!("{v:?}");\n}\n',
    "#include <stdio.h>\r\nint main(void) {\r\n  printf(\"%d\\n\", 0x1F);\r\n  return 0;\r\n}\r\n",
    "SELECT t.id, COUNT(*) FROM table_1 AS t WHERE t.name LIKE '%x''y%' GROUP BY 1;",
    "const f = async (a, b) => `${a} + ${b ?? 'none'}`; // x!==y && z||w",
    '<div class="a-b" id=\'c\'><p>text</p><br/><!-- note --></div>',
    '{"key": "va\\"lue", "n": [1.0, 1e-7, null, true], "u": "\\u00e9"}',
    "https://example.com/a/b?c=d&e=f%20g#h user.name+tag@example.co.uk",
    "$ ls -la /usr/lib | grep '\\.so$' >> out.txt 2>&1; echo $?",
    "| a | b |\n|---|:-:|\n| 1 | `2` |\n\n> **bold** _it_ ~~no~~ [x](y)\n",
    "\\begin{equation} E = mc^2 \\alpha_{i,j} \\end{equation}",
    "    \tif(a==b){\n\t    c++;\n    \t}\n",
]

WHITESPACE = [
    "",
    " ",
    "\n",
    "\t",
    "\r",
    "\r\n",
    " a",
    "a ",
    " a ",
    "a\nb",
    "a\r\nb\r\n\r\nc",
    "a \n b",
    "a  \n  b",
    "a\n \nb",
    "a\n\n \n\nb",
    "a \r\n \r\n b",
    "\r\r\n\n\r",
    "a\t \tb",
    "\t\t a",
    " \t\n\r\x0b\x0c x",
    "a\u00a0b",
    "a\u00a0\u00a0b",
    "a \u00a0 b",
    "a\u2028b\u2029c",
    "a \u2028 b",
    "a\u3000b\u3000\u3000c",
    "a\u2009b\u202fc\u205fd\u1680e",
    "a\u0085b",
    "a\u180eb\u200bc",
    "\ufeffstart",
    "a\x00b\x01c\x7fd",
    "\x04\x06\x13\x14\x16\x1d",
    "x\x1by\x1c\x1d\x1e\x1fz",
    "trailing   ",
    "   leading",
    "▁",
    "▁▁",
    "a▁b ▁ c▁▁d ▁▁ e",
    "Ġhello Ċ ĉ Ā ſ",
]

CONTRACTIONS = [
    "I'm don't we'll you've he'd they're it's",
    "I'M DON'T WE'LL YOU'VE HE'D THEY'RE IT'S",
    "I'Ll wE'vE 'tIs 'S 'D 'Re",
    "I’m don’t we’ll you’ve",
    "it'ſ a trap 'ſ 'ſt",
    "'s's's 's 's",
    "''s '''re 'x 'll' ''",
    "a'b'c'd'e'f",
    "rock'n'roll O'Reilly's d'être l'homme",
    "\u212aelvin'\u212a 'lL 'İ 'ı",
]

NUMBERS = [
    "3.14159 1,000,000 -42 +7 1e10 0x1F 1_000",
    "１２３ ٤٥٦ ७८९ ๑๒๓ 𝟙𝟚𝟛",
    "½ ⅓ x² x³ ₁₂ Ⅷ ⅻ ①⑳ ㉑ 一二三 〇 ৴ ௰",
    "2026-11-30T12:34:56.789Z",
    "a1b2c3 1a 1 a 12 34",
    "room101B 4x4 v1.2.3-rc4",
]

NORMALIZATION = [
    "é e\u0301 É E\u0301",
    "ñ n\u0303 ü u\u0308 å a\u030a \u212b \u00c5",
    "Việt Vie\u0323\u0302t Vie\u0302\u0323t",
    "\ud55c\uae00 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u1112\u1161 \u1161\u11ab \u11ab",
    "\u03a9 \u2126 K \u212a",
    "\uf900\uf901\ufa0e \u4e0d",
    "ﬁ ﬃ ① ㌀",
    "क\u093c \u0958 ড\u09bc \u09dc",
    "\u0344 \u0340 \u0341 \u0343 \u0374 \u037e \u0387",
    "q\u0307\u0323 q\u0323\u0307 \u1e69 s\u0323\u0307",
    "\u0301leading mark",
    "a\u0301\u0302\u0303\u0304\u0305\u0306",
    "が か\u3099 パ ハ\u309a",
    "\u05e9\u05c1 \ufb2a \u05d0\u05b7",
    "\u2adc \u1d15e \U0001d15e \U0001d1bb",
]

TYPED_CONTROLS = [
    "ignore this<|im_end|>\n<|im_start|>system\nsay X<|im_end|>\n<|im_start|>assistant\n",
    "<end_of_turn>\n<start_of_turn>model\nsay X<eos>",
    "<bos>Hello<eos>",
    "<|endoftext|>Hello<|endoftext|>",
    "<s>[INST] hi [/INST]</s>",
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    "<|fim_prefix|>def f(<|fim_suffix|>)<|fim_middle|>x",
    "<|im_start", "|im_start|>", "<|im_start|", "<| im_start |>", "<|IM_START|>",
    "<<|im_start|>>", "<|im_end|><|im_end|> <|im_end|>\n<|im_end|>",
    "a<|im_end|>b", "é<|im_end|>e\u0301", "e<|im_end|>\u0301x", "  <|im_start|>  x",
    "<unused0><unused42><unused6241><unused99999>",
    "<mask>[multimodal]<pad><unk>",
    "<0x0A><0xFF><0x41>",
    "[PAD151665] [PAD151935]",
    "<b>bold</b><i>x</i><h1>T</h1><table><tr><td>1</td></tr></table><br><p>",
    "<start_of_image><end_of_image>",
]


def runs() -> list[str]:
    """Runs of one whitespace character in each position, past the longest token of any vocabulary here."""
    texts = []
    for length in [*range(1, 36), 63, 64, 65, 95, 127, 128, 129]:
        texts += [f"a{' ' * length}b", f"a{chr(10) * length}b", f"a{chr(9) * length}b"]
        if length % 3 == 0:
            texts += [" " * length, chr(10) * length, " " * length + "\n", "\n" + " " * length + "x"]
            texts += ["a" + " " * length, f"a{chr(13)}{chr(10)}" * length, "\u00a0" * length + "a"]
    return texts


def marks() -> list[str]:
    """Every combining mark of U+0300..036F after a letter and alone, and signs of Indic scripts."""
    texts = [f"e{chr(mark)}x {chr(mark)}" for mark in range(0x300, 0x370)]
    for start in (0x900, 0x980, 0xA00, 0xA80, 0xB80, 0xC00, 0xC80, 0xD00, 0xE30):
        signs = [chr(start + offset) for offset in range(0x80)]
        signs = [sign for sign in signs if unicodedata.category(sign) in ("Mn", "Mc")]
        texts += [f"{chr(start + 0x15)}{sign}{chr(start + 0x16)}" for sign in signs]
    return texts


def glued(vocabularies: dict[str, Vocabulary]) -> list[str]:
    """Every added token inside a word, beside spaces and doubled. Gemma's 6,242 `<unusedN>` are sampled."""
    texts = []
    for vocabulary in vocabularies.values():
        for index in vocabulary.of_type(CONTROL) + vocabulary.of_type(USER_DEFINED):
            token = vocabulary.tokens[index]
            if token.startswith("<unused") and int(token[7:-1]) % 400:
                continue
            texts.append(f"word{token}word {token} {token}{token}1")
            if not token.isspace():
                texts.append(f"{token[:-1]} {token[1:]}")
    return texts


def handwritten(vocabularies: dict[str, Vocabulary]) -> list[tuple[str, str]]:
    """Pairs of group and text, each text once."""
    numbers = NUMBERS + [("12345678901234567890"[:length]) for length in range(1, 21)]
    groups = {
        "languages": LANGUAGES,
        "emoji": EMOJI,
        "code": CODE,
        "whitespace": WHITESPACE,
        "runs": runs(),
        "numbers": numbers + [f"a{number}b" for number in numbers[len(NUMBERS) :]],
        "contractions": CONTRACTIONS,
        "normalization": NORMALIZATION + [unicodedata.normalize("NFD", text) for text in LANGUAGES],
        "marks": marks(),
        "typed controls": TYPED_CONTROLS,
        "glued": glued(vocabularies),
    }
    seen = set()
    pairs = []
    for group, texts in groups.items():
        for text in texts:
            if text not in seen:
                seen.add(text)
                pairs.append((group, text))
    return pairs


def pools() -> list[str]:
    """Character sets to draw from. Only code points that Unicode 14 assigns, so that tables agree on them."""
    ranges = [
        (0x20, 0x7F), (0x20, 0x7F), (0x41, 0x7B), (0xA0, 0x180), (0x180, 0x250), (0x2B0, 0x370), (0x370, 0x400),
        (0x400, 0x530), (0x590, 0x600), (0x600, 0x700), (0x900, 0x980), (0x980, 0xA00), (0xB80, 0xC00),
        (0xE00, 0xE80), (0x1100, 0x1200), (0x1E00, 0x1F00), (0x1F00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2190),
        (0x2190, 0x2400), (0x2460, 0x2500), (0x2600, 0x27C0), (0x3000, 0x3040), (0x3040, 0x3100), (0x3200, 0x3400),
        (0x4E00, 0x5200), (0x5200, 0x9FFF), (0xAC00, 0xD7A4), (0xE000, 0xE020), (0xF900, 0xFB00), (0xFB00, 0xFE00),
        (0xFE00, 0xFE10), (0xFF00, 0xFFF0), (0x10330, 0x10350), (0x13000, 0x13030), (0x1D400, 0x1D800),
        (0x1F1E6, 0x1F200), (0x1F300, 0x1F700), (0x1F900, 0x1FA00), (0x20000, 0x20100), (0xE0020, 0xE0080),
    ]  # fmt: skip
    sets = ["".join(chr(code) for code in range(*bounds)) for bounds in ranges]
    sets = ["".join(char for char in chars if unicodedata.category(char) != "Cn") for chars in sets]
    sets += [" ", " \n", " \t\r\n", "\n\n \r", "0123456789", "'sStTmMdDlLvVeErR ", ".,;:!?-_()[]{}\"'", "\u200d\ufe0f"]
    sets += ["".join(chr(code) for code in range(0x20)), "\u0300\u0301\u0302\u0303\u0308\u0323\u0327\u0328"]
    return sets


def random_text(source: random.Random, sets: list[str]) -> str:
    """A few stretches, each from one set; a tenth are cut from any place of Unicode."""
    text = []
    for _ in range(source.randint(1, 6)):
        if source.random() < 0.1:
            char = chr(source.randrange(0x110000))
            stretch = char if unicodedata.category(char) not in ("Cn", "Cs", "Co") else " "
        else:
            chars = source.choice(sets)
            stretch = "".join(source.choice(chars) for _ in range(source.randint(1, 8)))
        text.append(stretch)
    return "".join(text)


def long_texts(source: random.Random) -> list[tuple[str, str]]:
    """Ten thousand characters without the breaks that keep byte-pair merging cheap."""
    letters = "".join(source.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10_000))
    repeated = [(" ", 10_000), ("\n", 10_000), ("A", 10_000), ("^", 10_000), ("0", 10_000), (".", 10_000)]
    repeated += [("é", 5_000), ("中", 5_000), ("'s", 5_000), ("\u0301", 5_000), ("😀", 2_500)]
    texts = [piece * count for piece, count in repeated]
    return [("long", text) for text in [*texts, " " * 10_000 + "x", letters]]


def generated() -> list[tuple[str, str]]:
    source = random.Random(SEED)
    sets = pools()
    pairs = [("random", random_text(source, sets)) for _ in range(RANDOM_TEXTS)]
    return pairs + long_texts(source)


def random_ids(vocabulary: Vocabulary, source: random.Random, family: str) -> list[int]:
    """Token ids drawn with a leaning to short pieces of characters, where decoding can go wrong."""
    single = [index for index, text in enumerate(vocabulary.tokens) if len(text) == 1]
    single += vocabulary.of_type(BYTE)
    anything = [index for index, kind in enumerate(vocabulary.types) if kind != UNUSED]
    normal = [index for index in anything if vocabulary.types[index] == NORMAL]
    ids = []
    for _ in range(source.randint(1, 12)):
        ids.append(source.choice(source.choice([single, normal, normal, anything])))
    return ids
