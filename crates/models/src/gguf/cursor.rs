//! Reads little-endian values from a byte slice, one after another, and never past its end.

use std::ops::Range;

use super::GgufError;

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn slice(&self, range: Range<usize>) -> &'a [u8] {
        &self.bytes[range]
    }

    /// Passes over `length` bytes. `place` names what is being read, for the error.
    pub(super) fn take(
        &mut self,
        length: u64,
        place: &dyn Fn() -> String,
    ) -> Result<Range<usize>, GgufError> {
        let left = self.bytes.len() - self.position;
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                let start = self.position;
                self.position += length;
                Ok(start..self.position)
            }
            _ => Err(GgufError::Truncated {
                place: place(),
                needed: length,
                offset: self.position,
                size: self.bytes.len(),
            }),
        }
    }

    fn array<const N: usize>(&mut self, place: &dyn Fn() -> String) -> Result<[u8; N], GgufError> {
        let range = self.take(N as u64, place)?;
        Ok(self.bytes[range].try_into().expect("take returns exactly N bytes"))
    }

    pub(super) fn u8(&mut self, place: &dyn Fn() -> String) -> Result<u8, GgufError> {
        Ok(u8::from_le_bytes(self.array(place)?))
    }

    pub(super) fn u16(&mut self, place: &dyn Fn() -> String) -> Result<u16, GgufError> {
        Ok(u16::from_le_bytes(self.array(place)?))
    }

    pub(super) fn u32(&mut self, place: &dyn Fn() -> String) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    pub(super) fn u64(&mut self, place: &dyn Fn() -> String) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    /// A string as GGUF writes it: a 64-bit length, then the bytes.
    pub(super) fn string(&mut self, place: &dyn Fn() -> String) -> Result<Range<usize>, GgufError> {
        let length = self.u64(place)?;
        self.take(length, place)
    }
}
