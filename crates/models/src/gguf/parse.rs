//! From the file's bytes to metadata and tensor table, in the order in which they lie in the file.

use std::collections::BTreeMap;

use super::GgufError;
use super::cursor::Cursor;
use super::metadata::{Array, Metadata, Value, ValueKind};
use super::tensors::{DIMENSIONS_MAX, RawTensor, TensorTable};

/// Metadata keys in a file. Real files have fewer than a hundred.
const KEYS_MAX: u64 = 65_536;
/// Tensors in a file. The largest real ones have a few thousand.
const TENSORS_MAX: u64 = 262_144;
/// Bytes of a key, as the format's description has it.
const KEY_BYTES_MAX: usize = 65_535;
/// Bytes of a tensor's name; the format's description allows 64.
const NAME_BYTES_MAX: usize = 1_024;
/// Arrays within arrays.
const NESTING_MAX: usize = 4;
/// The alignment of a file that does not state one.
const ALIGNMENT_DEFAULT: u64 = 32;
/// The format asks for a multiple of 8; more than the largest huge page that anyone maps would be a mistake.
const ALIGNMENTS: std::ops::RangeInclusive<u64> = 8..=1 << 24;

pub(super) struct Parsed {
    pub metadata: Metadata,
    pub tensors: TensorTable,
}

pub(super) fn parse(file: &[u8]) -> Result<Parsed, GgufError> {
    let mut cursor = Cursor::new(file);
    let header = read_header(&mut cursor)?;
    let mut entries = BTreeMap::new();
    for index in 0..header.keys {
        let (key, value) = read_entry(&mut cursor, index)?;
        if entries.contains_key(&key) {
            return Err(GgufError::key(key, "appears twice"));
        }
        entries.insert(key, value);
    }
    let mut raw = Vec::new();
    for index in 0..header.tensors {
        raw.push(read_tensor(&mut cursor, index)?);
    }
    let alignment = alignment(&entries)?;
    // Cannot wrap: the position is at most the file's size, and the alignment at most 16 MiB.
    let data_start = cursor.position().next_multiple_of(alignment as usize);
    let tensors = TensorTable::new(raw, data_start, alignment, file.len())?;
    Ok(Parsed { metadata: Metadata::new(cursor.slice(0..cursor.position()), entries), tensors })
}

struct Header {
    tensors: u64,
    keys: u64,
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Header, GgufError> {
    let place = || "the header".to_owned();
    let magic = cursor.take(4, &place)?;
    let magic = cursor.slice(magic);
    if magic != b"GGUF" {
        return Err(GgufError::Magic { found: magic.escape_ascii().to_string() });
    }
    let version = cursor.u32(&place)?;
    if matches!(version.swap_bytes(), 1..=3) {
        return Err(GgufError::BigEndian);
    }
    if !matches!(version, 2 | 3) {
        return Err(GgufError::Version(version));
    }
    let (tensors, keys) = (cursor.u64(&place)?, cursor.u64(&place)?);
    for (what, count, limit) in [("tensors", tensors, TENSORS_MAX), ("metadata keys", keys, KEYS_MAX)] {
        if count > limit {
            return Err(GgufError::TooMany { what, count, limit });
        }
    }
    Ok(Header { tensors, keys })
}

fn read_entry(cursor: &mut Cursor<'_>, index: u64) -> Result<(String, Value), GgufError> {
    let name = cursor.string(&|| format!("the name of metadata key {index}"))?;
    let bytes = cursor.slice(name);
    if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
        let problem = format!("its name has {} bytes, but must have 1 to {KEY_BYTES_MAX}", bytes.len());
        return Err(GgufError::key(format!("number {index}"), problem));
    }
    let Ok(key) = std::str::from_utf8(bytes) else {
        return Err(GgufError::key(bytes.escape_ascii().to_string(), "its name is not valid UTF-8"));
    };
    let value = read_value(cursor, key)?;
    Ok((key.to_owned(), value))
}

fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let place = || format!("the value of metadata key {key:?}");
    let kind = read_kind(cursor, key)?;
    Ok(match kind {
        ValueKind::U8 => Value::Unsigned(kind, cursor.u8(&place)?.into()),
        ValueKind::U16 => Value::Unsigned(kind, cursor.u16(&place)?.into()),
        ValueKind::U32 => Value::Unsigned(kind, cursor.u32(&place)?.into()),
        ValueKind::U64 => Value::Unsigned(kind, cursor.u64(&place)?),
        ValueKind::I8 => Value::Signed(kind, (cursor.u8(&place)? as i8).into()),
        ValueKind::I16 => Value::Signed(kind, (cursor.u16(&place)? as i16).into()),
        ValueKind::I32 => Value::Signed(kind, (cursor.u32(&place)? as i32).into()),
        ValueKind::I64 => Value::Signed(kind, cursor.u64(&place)? as i64),
        ValueKind::F32 => Value::Float(kind, f32::from_bits(cursor.u32(&place)?).into()),
        ValueKind::F64 => Value::Float(kind, f64::from_bits(cursor.u64(&place)?)),
        ValueKind::Bool => match cursor.u8(&place)? {
            bit @ 0..=1 => Value::Bool(bit == 1),
            other => return Err(GgufError::key(key, format!("is a bool of value {other}, not 0 or 1"))),
        },
        ValueKind::String => Value::String(cursor.string(&place)?),
        ValueKind::Array => Value::Array(read_array(cursor, key, 1)?),
    })
}

fn read_kind(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueKind, GgufError> {
    let id = cursor.u32(&|| format!("the type of metadata key {key:?}"))?;
    ValueKind::from_id(id).ok_or_else(|| GgufError::key(key, format!("has the unknown value type {id}")))
}

/// Walks an array so that its extent is known. Only its place is kept, so a long one costs nothing until it is read.
fn read_array(cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<Array, GgufError> {
    if depth > NESTING_MAX {
        return Err(GgufError::key(key, format!("has arrays nested more than {NESTING_MAX} deep")));
    }
    let kind = read_kind(cursor, key)?;
    let place = || format!("the array of metadata key {key:?}");
    let count = cursor.u64(&place)?;
    let start = cursor.position();
    match kind.bytes() {
        Some(bytes) => match count.checked_mul(bytes) {
            Some(length) => {
                cursor.take(length, &place)?;
            }
            None => return Err(GgufError::key(key, format!("claims {count} elements"))),
        },
        // Each round consumes at least 8 bytes, so the file's size bounds the loop whatever the count says.
        None => {
            for index in 0..count {
                match kind {
                    ValueKind::String => {
                        cursor.string(&|| format!("element {index} of metadata key {key:?}"))?;
                    }
                    _ => {
                        read_array(cursor, key, depth + 1)?;
                    }
                }
            }
        }
    }
    Ok(Array { kind, count: count as usize, elements: start..cursor.position() })
}

fn read_tensor(cursor: &mut Cursor<'_>, index: u64) -> Result<RawTensor, GgufError> {
    let name = cursor.string(&|| format!("the name of tensor {index}"))?;
    let bytes = cursor.slice(name);
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
        let problem = format!("its name has {} bytes, but must have 1 to {NAME_BYTES_MAX}", bytes.len());
        return Err(GgufError::tensor(format!("number {index}"), problem));
    }
    let Ok(name) = std::str::from_utf8(bytes) else {
        return Err(GgufError::tensor(bytes.escape_ascii().to_string(), "its name is not valid UTF-8"));
    };
    let place = || format!("the table entry of tensor {name:?}");
    let count = cursor.u32(&place)?;
    if !(1..=DIMENSIONS_MAX).contains(&count) {
        return Err(GgufError::tensor(
            name,
            format!("has {count} dimensions, but must have 1 to {DIMENSIONS_MAX}"),
        ));
    }
    let dimensions = (0..count).map(|_| cursor.u64(&place)).collect::<Result<Vec<u64>, _>>()?;
    let format_id = cursor.u32(&place)?;
    let offset = cursor.u64(&place)?;
    Ok(RawTensor { name: name.to_owned(), dimensions, format_id, offset })
}

fn alignment(entries: &BTreeMap<String, Value>) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    let value = match entries.get(KEY) {
        None => return Ok(ALIGNMENT_DEFAULT),
        Some(Value::Unsigned(ValueKind::U32, value)) => *value,
        Some(other) => {
            return Err(GgufError::key(KEY, format!("must be u32, but is {}", other.kind().name())));
        }
    };
    if !value.is_power_of_two() || !ALIGNMENTS.contains(&value) {
        let (low, high) = (ALIGNMENTS.start(), ALIGNMENTS.end());
        return Err(GgufError::key(
            KEY,
            format!("is {value}, but must be a power of two from {low} to {high}"),
        ));
    }
    Ok(value)
}
