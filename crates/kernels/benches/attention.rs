//! Attention beside the machine's own limits, measured in the same run: decode against reading memory, prefill against
//! multiplying in registers.
//!
//! `cargo bench -p kernels --bench attention -- [--threads N] [--isa NAME] [--f32] [--wide]`
//!
//! `--wide` lets the rows be rounded to bf16 where there are tiles for that.
//!
//! Decode goes from layer to layer, so that keys and values come from memory as in a model. Times are the best of many
//! calls: a machine that others use as well only ever adds to them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kernels::{AttentionJob, AttentionSequence, Isa, Kernels, KvDtype, KvLayer, Memory, Pool, Precision};

const WORKING_SET: usize = 256 << 20;
const BLOCK_TOKENS: usize = 16;
const DEPTH: usize = 4096;
const SEQUENCES: usize = 8;
const SPAN: Duration = Duration::from_millis(700);

/// Name, query heads, KV heads, head size.
const SHAPES: [(&str, usize, usize, usize); 4] = [
    ("SmolLM2-135M", 9, 3, 64),
    ("Qwen2.5-0.5B", 14, 2, 64),
    ("Qwen2.5-1.5B", 12, 2, 128),
    ("Gemma-3-270M", 4, 1, 256),
];

struct Options {
    threads: usize,
    isa: Isa,
    dtype: KvDtype,
    wide: bool,
}

fn main() {
    let options = options();
    let kernels = Kernels::new(options.isa, Precision::Fast, options.threads).expect("the machine has these");
    let name = options.dtype.name();
    println!("{} with {} threads, keys and values as {name}", options.isa, options.threads);
    println!(
        "{:13} {:22} {:>9} {:>7} {:>8} {:>9} {:>8}",
        "shape", "", "ms", "GB/s", "of read", "GFLOP/s", "of peak"
    );
    for (name, heads, kv_heads, head_dim) in SHAPES {
        let bytes = KvLayer::bytes_for(
            options.dtype,
            SEQUENCES * DEPTH / BLOCK_TOKENS,
            BLOCK_TOKENS,
            kv_heads,
            head_dim,
        );
        let layers: Vec<KvLayer> =
            (0..WORKING_SET / bytes).map(|_| layer(options.dtype, kv_heads, head_dim)).collect();
        let wide = if options.wide { usize::MAX } else { 0 };
        let bench = Bench { kernels: &kernels, layers: &layers, name, heads, wide };
        bench.measure("decode 8 x 4096", SEQUENCES, 1, DEPTH);
        bench.measure("decode 1 x 4096", 1, 1, DEPTH);
        bench.measure("prefill 512", 1, 512, 512);
        bench.measure("prefill 256 at 3840", 1, 256, DEPTH);
    }
}

fn options() -> Options {
    let mut options = Options { threads: 2, isa: Isa::best(), dtype: KvDtype::F16, wide: false };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value"));
        match word.as_str() {
            "--threads" => options.threads = value().parse().expect("a number of threads"),
            "--isa" => options.isa = value().parse().expect("an instruction set"),
            "--wide" => options.wide = true,
            "--f32" => options.dtype = KvDtype::F32,
            _ => panic!("unknown argument {word}"),
        }
    }
    options
}

fn layer(dtype: KvDtype, kv_heads: usize, head_dim: usize) -> KvLayer {
    let mut layer = KvLayer::new(dtype, SEQUENCES * DEPTH / BLOCK_TOKENS, BLOCK_TOKENS, kv_heads, head_dim);
    let numbers: Vec<f32> = (0..kv_heads * head_dim).map(|i| (i as f32 * 0.37).sin()).collect();
    for block in 0..layer.blocks() as u32 {
        (0..BLOCK_TOKENS).for_each(|offset| layer.write((block, offset), &numbers, &numbers));
    }
    layer
}

struct Bench<'a> {
    kernels: &'a Kernels,
    layers: &'a [KvLayer],
    name: &'a str,
    heads: usize,
    wide: usize,
}

impl Bench<'_> {
    /// The last `rows` of sequences of `depth` tokens.
    fn measure(&self, what: &str, sequences: usize, rows: usize, depth: usize) {
        let kv = &self.layers[0];
        let (head_dim, kv_heads) = (kv.head_dim(), kv.kv_heads());
        // Blocks of the sequences alternate, as they do when several grow together.
        let tables: Vec<Vec<u32>> = (0..sequences)
            .map(|sequence| {
                (0..depth / BLOCK_TOKENS).map(|block| (block * sequences + sequence) as u32).collect()
            })
            .collect();
        let parts: Vec<AttentionSequence<'_>> = tables
            .iter()
            .enumerate()
            .map(|(index, blocks)| AttentionSequence {
                rows: index * rows..(index + 1) * rows,
                wide: self.wide,
                first_position: depth - rows,
                blocks,
            })
            .collect();
        let q: Vec<f32> =
            (0..sequences * rows * self.heads * head_dim).map(|i| (i as f32 * 0.11).cos()).collect();
        let mut out = vec![0.0; q.len()];
        let mut layers = self.layers.iter().cycle();
        let seconds = best_seconds(|| {
            let kv = layers.next().expect("a cycle has no end");
            let scale = 1.0 / (head_dim as f32).sqrt();
            let job = AttentionJob {
                q: &q,
                kv,
                sequences: &parts,
                heads: self.heads,
                scale,
                window: None,
                softcap: None,
            };
            self.kernels.attention(&job, &mut out);
            black_box(&out);
        });
        let pool = self.kernels.pool();
        let (read, peak) = (read_bandwidth(pool), peak::multiply_adds(pool));
        let bytes = (sequences * depth * kv_heads * head_dim * 2 * kv.dtype().bytes()) as f64 / seconds;
        let seen: usize = (depth - rows + 1..=depth).sum();
        let operations = (sequences * seen * self.heads * head_dim * 4) as f64 / seconds;
        println!(
            "{:13} {what:22} {:>9.3} {:>7.1} {:>7.0}% {:>9.0} {:>7.0}%",
            self.name,
            seconds * 1e3,
            bytes / 1e9,
            100.0 * bytes / read,
            operations / 1e9,
            100.0 * operations / peak,
        );
    }
}

fn best_seconds(mut call: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < SPAN {
        let before = Instant::now();
        call();
        best = best.min(before.elapsed().as_secs_f64());
    }
    best
}

/// Bytes per second that all threads together read, in pieces of 32 MiB from a working set far beyond the caches.
fn read_bandwidth(pool: &Pool) -> f64 {
    const PIECE: usize = 32 << 20;
    let mut memory = Memory::<u32>::zeroed(WORKING_SET / 4);
    memory.fill(1);
    let mut pieces = memory.chunks_exact(PIECE / 4).cycle();
    let seconds = best_seconds(|| {
        let piece = pieces.next().expect("a cycle has no end");
        let share = piece.len() / pool.threads();
        pool.run(&|thread| {
            let part = &piece[thread * share..(thread + 1) * share];
            // Many sums side by side, so that the loop is a plain stream of vector loads.
            let mut sums = [0u32; 64];
            for chunk in part.as_chunks::<64>().0 {
                sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
            }
            black_box(sums);
        });
    });
    PIECE as f64 / seconds
}

#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use kernels::Pool;

    const ROUNDS: u64 = 200_000;
    const SUMS: usize = 16;

    /// Floating-point operations per second of fused multiply-adds on all threads, in the widest registers.
    pub fn multiply_adds(pool: &Pool) -> f64 {
        let wide = is_x86_feature_detected!("avx512f");
        assert!(wide || is_x86_feature_detected!("fma"), "the peak is measured with FMA at least");
        let lanes = if wide { 16 } else { 8 };
        let seconds = super::best_seconds(|| {
            pool.run(&|_| {
                // SAFETY: the features were just found.
                unsafe { if wide { rounds_512() } else { rounds_256() } }
            });
        });
        (pool.threads() as u64 * ROUNDS * SUMS as u64 * lanes * 2) as f64 / seconds
    }

    #[target_feature(enable = "avx512f")]
    fn rounds_512() {
        let mut sums = [_mm512_setzero_ps(); SUMS];
        let (a, b) = (black_box(_mm512_set1_ps(0.5)), black_box(_mm512_set1_ps(1.5)));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    fn rounds_256() {
        let mut sums = [_mm256_setzero_ps(); SUMS];
        let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(1.5)));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(a, b, *sum);
            }
        }
        black_box(sums);
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod peak {
    /// Not measured here: shares of it print as zero.
    pub fn multiply_adds(_pool: &kernels::Pool) -> f64 {
        f64::INFINITY
    }
}
