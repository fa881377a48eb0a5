//! Thousands of random mutations: whatever the bytes say, the answer is a value or an error, never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use models::families::FAMILIES;
use models::testing::{Random, tiny_model};

use crate::{TemporaryFile, load};

/// Values that arithmetic on sizes trips over.
const EDGES: [u64; 10] =
    [0, 1, 31, 255, 1 << 31, u32::MAX as u64, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX];

#[test]
fn no_mutation_of_a_header_panics() {
    let mut refused = 0;
    let mut random = Random(64);
    for family in &FAMILIES {
        let whole = tiny_model(family.architecture).build();
        for round in 0..1_000 {
            let mut image = whole.clone();
            for _ in 0..1 + random.below(3) {
                mutate(&mut random, &mut image.bytes_mut()[..whole.header_bytes()]);
            }
            let file = TemporaryFile::of(image.bytes());
            match catch_unwind(AssertUnwindSafe(|| load(&file.0))) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => refused += 1,
                Err(_) => panic!("mutation {round} of {} panicked", family.architecture),
            }
        }
    }
    assert!(
        refused > 1_000,
        "only {refused} of 4000 mutations were refused: do they reach the fields at all?"
    );
}

fn mutate(random: &mut Random, header: &mut [u8]) {
    let at = random.below(header.len());
    match random.below(4) {
        0 => header[at] ^= 1 << random.below(8),
        1 => header[at] = random.bits() as u8,
        2 => write(header, at, &(EDGES[random.below(EDGES.len())]).to_le_bytes()),
        _ => write(header, at, &(EDGES[random.below(EDGES.len())] as u32).to_le_bytes()),
    }
}

fn write(header: &mut [u8], at: usize, bytes: &[u8]) {
    let length = bytes.len().min(header.len() - at);
    header[at..at + length].copy_from_slice(&bytes[..length]);
}
