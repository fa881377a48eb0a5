//! A file's typed metadata, with getters that fail by naming the key and both types.

use std::collections::BTreeMap;
use std::ops::Range;

use super::GgufError;

/// The type of a metadata value, by the number it has in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ValueKind {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueKind {
    pub(super) fn from_id(id: u32) -> Option<ValueKind> {
        use ValueKind::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].get(id as usize).copied()
    }

    /// Bytes of one value, or `None` where they vary.
    pub(super) fn bytes(self) -> Option<u64> {
        use ValueKind::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            String | Array => None,
        }
    }

    /// The type's name in messages.
    pub fn name(self) -> &'static str {
        use ValueKind::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            String => "string",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }
}

/// A metadata value. Strings and arrays stay where they are in the header; these are their places.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Unsigned(ValueKind, u64),
    Signed(ValueKind, i64),
    Float(ValueKind, f64),
    Bool(bool),
    String(Range<usize>),
    Array(Array),
}

impl Value {
    /// The value's type in the file.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::Unsigned(kind, _) | Value::Signed(kind, _) | Value::Float(kind, _) => *kind,
            Value::Bool(_) => ValueKind::Bool,
            Value::String(_) => ValueKind::String,
            Value::Array(_) => ValueKind::Array,
        }
    }

    fn describe(&self) -> String {
        match self {
            Value::Array(array) => format!("an array of {}", array.kind.name()),
            other => other.kind().name().to_owned(),
        }
    }
}

/// An array's element type, its length, and where its elements lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub kind: ValueKind,
    pub count: usize,
    pub(super) elements: Range<usize>,
}

/// All metadata of a file. It owns the header's bytes, so that it outlives the map.
#[derive(Debug)]
pub struct Metadata {
    header: Vec<u8>,
    entries: BTreeMap<String, Value>,
}

impl Metadata {
    /// `header` must reach over every range in `entries`; the parser sees to that.
    pub(super) fn new(header: &[u8], entries: BTreeMap<String, Value>) -> Self {
        Metadata { header: header.to_vec(), entries }
    }

    /// All keys with their values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key`, whatever its type.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// An integer of any width that is not negative.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Unsigned(_, value)) => Ok(Some(*value)),
            Some(Value::Signed(_, value)) => match u64::try_from(*value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(GgufError::key(key, format!("is {value}, but must not be negative"))),
            },
            Some(other) => Err(mismatch(key, "an integer", other)),
        }
    }

    /// An integer of any width that fits an i64.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Signed(_, value)) => Ok(Some(*value)),
            Some(Value::Unsigned(_, value)) => match i64::try_from(*value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(GgufError::key(key, format!("is {value}, which no id or size can be"))),
            },
            Some(other) => Err(mismatch(key, "an integer", other)),
        }
    }

    /// A number as f32. The file stores most as f32; an f64 is rounded.
    pub fn float(&self, key: &str) -> Result<Option<f32>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Float(_, value)) => Ok(Some(*value as f32)),
            Some(other) => Err(mismatch(key, "a float", other)),
        }
    }

    /// A boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(mismatch(key, "a bool", other)),
        }
    }

    /// A string, which must be valid UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(range)) => match std::str::from_utf8(&self.header[range.clone()]) {
                Ok(text) => Ok(Some(text)),
                Err(error) => Err(GgufError::key(key, format!("is not valid UTF-8: {error}"))),
            },
            Some(other) => Err(mismatch(key, "a string", other)),
        }
    }

    /// How many elements an array of any type has.
    pub fn array_length(&self, key: &str) -> Result<Option<usize>, GgufError> {
        Ok(self.array(key, "an array", |_| true)?.map(|array| array.count))
    }

    /// An array of strings, as bytes.
    pub fn byte_strings(&self, key: &str) -> Result<Option<Vec<&[u8]>>, GgufError> {
        let Some(array) = self.array(key, "an array of strings", |kind| kind == ValueKind::String)? else {
            return Ok(None);
        };
        // The parser walked the elements, so the file holds at least 8 bytes for each: the count is no mere claim.
        let mut strings = Vec::with_capacity(array.count);
        let mut rest = &self.header[array.elements.clone()];
        while let Some((length, tail)) = rest.split_first_chunk() {
            let (bytes, tail) = tail.split_at(u64::from_le_bytes(*length) as usize);
            strings.push(bytes);
            rest = tail;
        }
        Ok(Some(strings))
    }

    /// An array of f32.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let array = self.array(key, "an array of f32", |kind| kind == ValueKind::F32)?;
        Ok(array.map(|array| self.words(array).map(f32::from_le_bytes).collect()))
    }

    /// An array of 32-bit integers, signed or not; unsigned ones above `i32::MAX` are refused.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        let integer = |kind| matches!(kind, ValueKind::I32 | ValueKind::U32);
        let Some(array) = self.array(key, "an array of 32-bit integers", integer)? else { return Ok(None) };
        let values: Vec<i32> = self.words(array).map(i32::from_le_bytes).collect();
        match values.iter().position(|value| array.kind == ValueKind::U32 && *value < 0) {
            Some(index) => Err(GgufError::key(key, format!("element {index} does not fit 31 bits"))),
            None => Ok(Some(values)),
        }
    }

    fn array(
        &self,
        key: &str,
        wanted: &str,
        fits: fn(ValueKind) -> bool,
    ) -> Result<Option<&Array>, GgufError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(array)) if fits(array.kind) => Ok(Some(array)),
            Some(other) => Err(mismatch(key, wanted, other)),
        }
    }

    fn words(&self, array: &Array) -> impl Iterator<Item = [u8; 4]> {
        self.header[array.elements.clone()].as_chunks::<4>().0.iter().copied()
    }
}

/// A value that a model cannot do without.
pub fn required<T>(key: &str, value: Option<T>) -> Result<T, GgufError> {
    value.ok_or_else(|| GgufError::key(key, "is missing"))
}

fn mismatch(key: &str, wanted: &str, found: &Value) -> GgufError {
    GgufError::key(key, format!("must be {wanted}, but is {}", found.describe()))
}
