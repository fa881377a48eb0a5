//! The tensor table: names, shapes, formats, and where each tensor's bytes lie.

use std::collections::BTreeMap;
use std::ops::Range;

use kernels::Format;

use super::GgufError;

/// Dimensions that a tensor may have.
pub(super) const DIMENSIONS_MAX: u32 = 4;

/// One tensor of a file, with its extent checked against the file's size.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    pub name: String,
    /// As the file writes them: the first is the contiguous one (a matrix's inputs), then the rows.
    pub dimensions: Vec<usize>,
    pub format: Format,
    /// Where the bytes begin, from the start of the file.
    pub offset: usize,
    pub bytes: usize,
}

impl TensorInfo {
    /// Values along the contiguous dimension: a matrix's inputs.
    pub fn cols(&self) -> usize {
        self.dimensions[0]
    }

    /// Product of the other dimensions: a matrix's outputs.
    pub fn rows(&self) -> usize {
        self.dimensions[1..].iter().product()
    }

    /// Values in all.
    pub fn values(&self) -> usize {
        self.dimensions.iter().product()
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }
}

/// What the table says about a tensor, before its extent is known to lie within the file.
pub(super) struct RawTensor {
    pub name: String,
    pub dimensions: Vec<u64>,
    pub format_id: u32,
    /// From the start of the data section.
    pub offset: u64,
}

/// All tensors, in the file's order and by name.
#[derive(Debug)]
pub(super) struct TensorTable {
    all: Vec<TensorInfo>,
    by_name: BTreeMap<String, usize>,
}

impl TensorTable {
    /// Checks every tensor's extent. `data_start` is where the data section begins, `size` the file's size.
    pub(super) fn new(
        raw: Vec<RawTensor>,
        data_start: usize,
        alignment: u64,
        size: usize,
    ) -> Result<TensorTable, GgufError> {
        let mut all = Vec::new();
        let mut by_name = BTreeMap::new();
        for tensor in raw {
            let info = resolve(tensor, data_start, alignment, size)?;
            if by_name.insert(info.name.clone(), all.len()).is_some() {
                return Err(GgufError::tensor(info.name, "appears twice"));
            }
            all.push(info);
        }
        refuse_overlap(&all)?;
        Ok(TensorTable { all, by_name })
    }

    pub(super) fn all(&self) -> &[TensorInfo] {
        &self.all
    }

    pub(super) fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|index| &self.all[*index])
    }
}

fn resolve(raw: RawTensor, data_start: usize, alignment: u64, size: usize) -> Result<TensorInfo, GgufError> {
    let fail = |problem: String| Err(GgufError::tensor(raw.name.clone(), problem));
    let Some(format) = Format::from_ggml(raw.format_id) else {
        return fail(format!("has type {}, which is unknown, retired or not supported", raw.format_id));
    };
    if raw.dimensions.contains(&0) {
        return fail(format!("has shape {:?}, with an empty dimension", raw.dimensions));
    }
    let Some(dimensions) = addressable(&raw.dimensions) else {
        return fail(format!("has shape {:?}, which is more than any memory holds", raw.dimensions));
    };
    if !dimensions[0].is_multiple_of(format.block_len()) {
        let (cols, block) = (dimensions[0], format.block_len());
        return fail(format!("has rows of {cols} values; {} comes in blocks of {block}", format.name()));
    }
    // `addressable` left room for the widest format, so this product cannot wrap.
    let bytes = dimensions.iter().product::<usize>() / format.block_len() * format.block_bytes();
    if !raw.offset.is_multiple_of(alignment) {
        return fail(format!(
            "begins at {}, which is not a multiple of the alignment {alignment}",
            raw.offset
        ));
    }
    let extent = usize::try_from(raw.offset)
        .ok()
        .and_then(|offset| data_start.checked_add(offset))
        .and_then(|offset| Some((offset, offset.checked_add(bytes)?)));
    match extent {
        Some((offset, end)) if end <= size => {
            Ok(TensorInfo { name: raw.name, dimensions, format, offset, bytes })
        }
        _ => fail(format!(
            "needs {bytes} bytes at offset {} of the data section, past the file's end ({size} bytes); \
             the file is cut short",
            raw.offset
        )),
    }
}

/// The dimensions as `usize`, if their product fits an `i64` with room for 8 bytes per value.
fn addressable(dimensions: &[u64]) -> Option<Vec<usize>> {
    let product = dimensions.iter().try_fold(1u64, |product, dimension| product.checked_mul(*dimension))?;
    if product > i64::MAX as u64 / 8 {
        return None;
    }
    dimensions.iter().map(|dimension| usize::try_from(*dimension).ok()).collect()
}

/// Tensors that share bytes would let a small file ask for a lot of memory.
fn refuse_overlap(tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        if pair[0].range().end > pair[1].offset {
            return Err(GgufError::tensor(&pair[1].name, format!("overlaps tensor {:?}", pair[0].name)));
        }
    }
    Ok(())
}
