//! Checksums of what arrives: SHA-256 while copying, or of a file where it lies.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::FetchError;

const BUFFER_BYTES: usize = 1 << 20;

/// Copies all of `from` to `to` and returns the length and the SHA-256 of what was copied.
pub(crate) fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    copied: &mut dyn FnMut(u64),
) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut length = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        length += count as u64;
        copied(length);
    }
    let hex = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((length, hex))
}

/// Whether `length` and `sha256` are as expected; the error says in which way they are not.
pub(crate) fn check(what: &str, found: &(u64, String), bytes: u64, sha256: &str) -> Result<(), FetchError> {
    let wrong = if found.0 != bytes {
        format!("it has {} bytes instead of {bytes}", found.0)
    } else if found.1 != sha256 {
        format!("its SHA-256 is {} instead of {sha256}", found.1)
    } else {
        return Ok(());
    };
    Err(FetchError::Damaged { what: what.to_owned(), found: wrong })
}

/// Checks a file where it lies.
pub(crate) fn check_file(
    path: &Path,
    bytes: u64,
    sha256: &str,
    read: &mut dyn FnMut(u64),
) -> Result<(), FetchError> {
    let mut file = File::open(path).map_err(FetchError::io("open", path))?;
    let found = copy(&mut file, &mut io::sink(), read).map_err(FetchError::io("read", path))?;
    check("the file", &found, bytes, sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_sha256_defines() {
        // FIPS 180-2, appendix B.1.
        let mut out = Vec::new();
        let (length, hex) = copy(&mut "abc".as_bytes(), &mut out, &mut |_| {}).unwrap();
        assert_eq!((length, out.as_slice()), (3, "abc".as_bytes()));
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_wrong_length_is_said_before_a_wrong_checksum() {
        let found = (3, "ff".to_owned());
        assert!(check("x", &found, 4, "ff").unwrap_err().to_string().contains("3 bytes instead of 4"));
        assert!(check("x", &found, 3, "00").unwrap_err().to_string().contains("ff instead of 00"));
        assert!(check("x", &found, 3, "ff").is_ok());
    }
}
