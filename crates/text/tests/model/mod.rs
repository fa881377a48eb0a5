//! The vocabularies of the real models, read from their GGUF files by a reader just large enough.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use text::{Tokenizer, Vocabulary, VocabularySource};

/// A model's metadata: what is read of it here.
pub struct Model {
    pub source: VocabularySource,
    pub template: Option<String>,
}

impl Model {
    pub fn tokenizer(self) -> Tokenizer {
        Tokenizer::new(Arc::new(Vocabulary::new(self.source).expect("a real vocabulary is accepted")))
    }
}

/// The model that the goldens call `family`.
pub fn read(family: &str) -> Model {
    let name = match family {
        "smollm2" => "smollm2-135m-instruct",
        "gemma3" => "gemma-3-270m",
        "qwen2" => "qwen2.5-coder-0.5b-instruct",
        other => other,
    };
    let folder = std::env::var_os("FIRSTLIGHT_MODELS").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("HOME is set");
        PathBuf::from(home).join(".cache/firstlight/models")
    });
    let path = folder.join(format!("{name}.gguf"));
    let file = File::open(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `firstlight model pull {name}`", path.display()));
    let mut reader = Reader(BufReader::new(file));
    let mut model = Model { source: VocabularySource::default(), template: None };
    assert_eq!(reader.bytes(4), b"GGUF");
    reader.bytes(4 + 8);
    for _ in 0..reader.u64() {
        let key = String::from_utf8(reader.string()).unwrap();
        let value = reader.value();
        model.take(&key, value);
    }
    model.source.normalize_nfc = name.starts_with("qwen");
    model
}

enum Value {
    Integer(i64),
    Float(f32),
    String(Vec<u8>),
    Array(Vec<Value>),
}

impl Model {
    fn take(&mut self, key: &str, value: Value) {
        let source = &mut self.source;
        match (key, value) {
            ("tokenizer.chat_template", Value::String(text)) => {
                self.template = Some(String::from_utf8(text).unwrap())
            }
            ("tokenizer.ggml.model", Value::String(name)) => source.model = String::from_utf8(name).unwrap(),
            ("tokenizer.ggml.pre", Value::String(name)) => {
                source.pre = Some(String::from_utf8(name).unwrap())
            }
            ("tokenizer.ggml.tokens", Value::Array(values)) => source.tokens = strings(values),
            ("tokenizer.ggml.merges", Value::Array(values)) => source.merges = strings(values),
            ("tokenizer.ggml.token_type", Value::Array(values)) => {
                source.token_types = values.iter().map(|value| value.integer() as i32).collect();
            }
            ("tokenizer.ggml.scores", Value::Array(values)) => {
                let float = |value| if let Value::Float(score) = value { score } else { panic!("a score") };
                source.scores = values.into_iter().map(float).collect();
            }
            ("tokenizer.ggml.bos_token_id", value) => source.bos = Some(value.integer()),
            ("tokenizer.ggml.eos_token_id", value) => source.eos = Some(value.integer()),
            ("tokenizer.ggml.unknown_token_id", value) => source.unknown = Some(value.integer()),
            ("tokenizer.ggml.padding_token_id", value) => source.padding = Some(value.integer()),
            ("tokenizer.ggml.add_bos_token", value) => source.add_bos = Some(value.integer() != 0),
            ("tokenizer.ggml.add_eos_token", value) => source.add_eos = Some(value.integer() != 0),
            ("tokenizer.ggml.add_space_prefix", value) => {
                source.add_space_prefix = Some(value.integer() != 0)
            }
            _ => {}
        }
    }
}

impl Value {
    fn integer(&self) -> i64 {
        if let Value::Integer(value) = self { *value } else { panic!("an integer") }
    }
}

fn strings(values: Vec<Value>) -> Vec<Vec<u8>> {
    let string = |value| if let Value::String(bytes) = value { bytes } else { panic!("a string") };
    values.into_iter().map(string).collect()
}

struct Reader(BufReader<File>);

impl Reader {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }

    fn string(&mut self) -> Vec<u8> {
        let length = self.u64() as usize;
        self.bytes(length)
    }

    fn value(&mut self) -> Value {
        let kind = self.u32();
        self.value_of(kind)
    }

    fn value_of(&mut self, kind: u32) -> Value {
        match kind {
            0 | 1 | 7 => Value::Integer(self.bytes(1)[0].into()),
            2 | 3 => Value::Integer(u16::from_le_bytes(self.bytes(2).try_into().unwrap()).into()),
            4 => Value::Integer(self.u32().into()),
            5 => Value::Integer((self.u32() as i32).into()),
            6 => Value::Float(f32::from_bits(self.u32())),
            8 => Value::String(self.string()),
            9 => {
                let kind = self.u32();
                let count = self.u64();
                Value::Array((0..count).map(|_| self.value_of(kind)).collect())
            }
            _ => Value::Integer(self.u64() as i64),
        }
    }
}
