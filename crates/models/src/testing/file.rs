//! Writes GGUF files field by field and remembers where each field lies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// A metadata value to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    U8(u8),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    /// A string of arbitrary bytes.
    Bytes(Vec<u8>),
    Strings(Vec<Vec<u8>>),
    Floats(Vec<f32>),
    Integers(Vec<i32>),
    /// Any type number with any payload: for values that the others cannot express.
    Raw {
        kind: u32,
        payload: Vec<u8>,
    },
}

impl From<&str> for Datum {
    fn from(text: &str) -> Datum {
        Datum::Str(text.to_owned())
    }
}

impl Datum {
    /// An array of strings.
    pub fn strings<'a>(strings: impl IntoIterator<Item = &'a str>) -> Datum {
        Datum::Strings(strings.into_iter().map(|text| text.as_bytes().to_vec()).collect())
    }

    /// The type's number and the value's bytes.
    fn encode(&self) -> (u32, Vec<u8>) {
        match self {
            Datum::U8(value) => (0, vec![*value]),
            Datum::U32(value) => (4, value.to_le_bytes().to_vec()),
            Datum::I32(value) => (5, value.to_le_bytes().to_vec()),
            Datum::F32(value) => (6, value.to_le_bytes().to_vec()),
            Datum::Bool(value) => (7, vec![u8::from(*value)]),
            Datum::Str(text) => (8, string(text.as_bytes())),
            Datum::Bytes(bytes) => (8, string(bytes)),
            Datum::Strings(strings) => {
                (9, array(8, strings.len(), strings.iter().flat_map(|text| string(text))))
            }
            Datum::Floats(values) => {
                (9, array(6, values.len(), values.iter().flat_map(|value| value.to_le_bytes())))
            }
            Datum::Integers(values) => {
                (9, array(5, values.len(), values.iter().flat_map(|value| value.to_le_bytes())))
            }
            Datum::U64(value) => (10, value.to_le_bytes().to_vec()),
            Datum::I64(value) => (11, value.to_le_bytes().to_vec()),
            Datum::F64(value) => (12, value.to_le_bytes().to_vec()),
            Datum::Raw { kind, payload } => (*kind, payload.clone()),
        }
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = (bytes.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

fn array(kind: u32, count: usize, elements: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend_from_slice(&(count as u64).to_le_bytes());
    out.extend(elements);
    out
}

/// A tensor to be written.
#[derive(Clone, Debug)]
struct TensorData {
    name: String,
    /// The contiguous dimension first.
    dimensions: Vec<u64>,
    /// GGML's number of the format.
    format: u32,
    bytes: Vec<u8>,
}

/// A model file in the making.
#[derive(Clone, Debug)]
pub struct FileBuilder {
    version: u32,
    keys: Vec<(String, Datum)>,
    tensors: Vec<TensorData>,
}

impl Default for FileBuilder {
    fn default() -> Self {
        FileBuilder { version: 3, keys: Vec::new(), tensors: Vec::new() }
    }
}

impl FileBuilder {
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets a key, replacing a value it already has.
    pub fn set(mut self, key: &str, value: impl Into<Datum>) -> Self {
        let value = value.into();
        match self.keys.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.keys.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a key even if it is there already.
    pub fn add(mut self, key: &str, value: impl Into<Datum>) -> Self {
        self.keys.push((key.to_owned(), value.into()));
        self
    }

    pub fn remove(mut self, key: &str) -> Self {
        self.keys.retain(|(name, _)| name != key);
        self
    }

    /// Adds a tensor of f32 values.
    pub fn tensor_f32(self, name: &str, dimensions: &[u64], values: &[f32]) -> Self {
        self.tensor(name, dimensions, 0, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// Adds a tensor of any format.
    pub fn tensor(mut self, name: &str, dimensions: &[u64], format: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push(TensorData {
            name: name.to_owned(),
            dimensions: dimensions.to_vec(),
            format,
            bytes,
        });
        self
    }

    pub fn remove_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// Gives a tensor another shape, and nothing else.
    pub fn reshape(mut self, name: &str, dimensions: &[u64]) -> Self {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("the tensor is there");
        tensor.dimensions = dimensions.to_vec();
        self
    }

    /// Names of the tensors added so far.
    pub fn tensor_names(&self) -> Vec<String> {
        self.tensors.iter().map(|tensor| tensor.name.clone()).collect()
    }

    /// Lays out the file.
    pub fn build(&self) -> Image {
        let alignment = self.alignment();
        let mut image = Image::default();
        image.put("magic", b"GGUF");
        image.put("version", &self.version.to_le_bytes());
        image.put("tensors", &(self.tensors.len() as u64).to_le_bytes());
        image.put("keys", &(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            let (kind, payload) = value.encode();
            image.put(&format!("{key}/name-length"), &(key.len() as u64).to_le_bytes());
            image.put(&format!("{key}/name"), key.as_bytes());
            image.put(&format!("{key}/type"), &kind.to_le_bytes());
            image.put(&format!("{key}/value"), &payload);
        }
        let mut offset = 0;
        for TensorData { name, dimensions, format, bytes } in &self.tensors {
            image.put(&format!("{name}/name-length"), &(name.len() as u64).to_le_bytes());
            image.put(&format!("{name}/name"), name.as_bytes());
            image.put(&format!("{name}/dimension-count"), &(dimensions.len() as u32).to_le_bytes());
            for (index, dimension) in dimensions.iter().enumerate() {
                image.put(&format!("{name}/dimension-{index}"), &dimension.to_le_bytes());
            }
            image.put(&format!("{name}/format"), &format.to_le_bytes());
            image.put(&format!("{name}/offset"), &(offset as u64).to_le_bytes());
            offset = (offset + bytes.len()).next_multiple_of(alignment);
        }
        image.header_bytes = image.bytes.len();
        for TensorData { name, bytes, .. } in &self.tensors {
            image.bytes.resize(image.bytes.len().next_multiple_of(alignment), 0);
            image.put(&format!("{name}/data"), bytes);
        }
        image
    }

    /// What the file states, if a layout can follow it; a dishonest statement is not followed.
    fn alignment(&self) -> usize {
        match self.keys.iter().find(|(key, _)| key == "general.alignment") {
            Some((_, Datum::U32(value))) if value.is_power_of_two() && (8..=1 << 16).contains(value) => {
                *value as usize
            }
            _ => 32,
        }
    }
}

/// A file's bytes, and the place of every field in them.
///
/// Fields are `magic`, `version`, `tensors` and `keys` (the counts); for a key `KEY/name-length`, `KEY/name`,
/// `KEY/type` and `KEY/value`; for a tensor `NAME/name-length`, `NAME/name`, `NAME/dimension-count`,
/// `NAME/dimension-0` and so on, `NAME/format`, `NAME/offset` and `NAME/data`.
#[derive(Clone, Debug, Default)]
pub struct Image {
    bytes: Vec<u8>,
    fields: BTreeMap<String, Range<usize>>,
    header_bytes: usize,
}

impl Image {
    fn put(&mut self, field: &str, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.fields.insert(field.to_owned(), start..self.bytes.len());
    }

    /// Overwrites the beginning of a field.
    pub fn overwrite(mut self, field: &str, bytes: &[u8]) -> Self {
        self.overwrite_at(field, 0, bytes)
            .unwrap_or_else(|| panic!("{field} is no field of the file, or is shorter than {}", bytes.len()));
        self
    }

    /// Overwrites a field from `skip` bytes on: an array's count lies 4 bytes into its value, for example.
    pub fn overwrite_at(&mut self, field: &str, skip: usize, bytes: &[u8]) -> Option<()> {
        let range = self.fields.get(field)?.clone();
        self.bytes.get_mut(range)?.get_mut(skip..skip + bytes.len())?.copy_from_slice(bytes);
        Some(())
    }

    /// Cuts the file after `length` bytes.
    pub fn truncate(mut self, length: usize) -> Self {
        self.bytes.truncate(length);
        self
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Where a field lies.
    pub fn field(&self, field: &str) -> Range<usize> {
        self.fields.get(field).unwrap_or_else(|| panic!("{field} is no field of the file")).clone()
    }

    /// Bytes before the data section.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes).unwrap_or_else(|error| panic!("cannot write {path:?}: {error}"));
    }
}
