//! Speeds of the matrix products beside the machine's own peaks, measured in the same run.
//!
//! `cargo bench -p kernels -- [FORMAT ...] [--threads N] [--isa NAME] [--exact] [--wide] [--cpu]`
//!
//! `--wide` rounds the rows to bf16 where there are tiles for them.
//!
//! `--cpu` counts the process's processor time instead of the wall's: with `--threads 1` this gives usable figures where
//! other programs want the same cores.
//!
//! Shapes are those of Qwen2.5-1.5B: with one row the weights come from memory, copy after copy of the matrix; GB/s counts
//! bytes of packed weights, GOP/s two operations per weight and row. Shares are of the bandwidth of plain reads and of the rate
//! of byte-wise dot products in registers (`vpdpbusd`), measured in alternation with the product.

use std::hint::black_box;
use std::time::Duration;

use kernels::{Activations, Format, Isa, Kernels, Memory, PackedMatrix, Pool, Precision};

/// Weights of one shape together: far beyond what caches hold.
const WORKING_SET: usize = 256 << 20;

const SHAPES: [(usize, usize); 3] = [(1536, 1536), (8960, 1536), (1536, 8960)];

const FORMATS: [Format; 5] = [Format::Q4K, Format::Q6K, Format::Q4_1, Format::Q5_0, Format::Q8_0];

/// What the time of a run is taken from.
#[derive(Clone, Copy)]
enum Clock {
    Wall,
    Cpu,
}

impl Clock {
    fn now(self) -> Duration {
        let clock = match self {
            Clock::Wall => libc::CLOCK_MONOTONIC,
            Clock::Cpu => libc::CLOCK_PROCESS_CPUTIME_ID,
        };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place to write to.
        let failed = unsafe { libc::clock_gettime(clock, &mut time) };
        assert_eq!(failed, 0, "the clock can be read");
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn seconds_of(self, work: impl FnOnce()) -> f64 {
        let start = self.now();
        work();
        (self.now() - start).as_secs_f64()
    }
}

struct Options {
    clock: Clock,
    formats: Vec<Format>,
    threads: usize,
    isa: Isa,
    precision: Precision,
    wide: bool,
}

fn main() {
    let options = options();
    let kernels =
        Kernels::new(options.isa, options.precision, options.threads).expect("the machine has these");
    let mut machine = Machine::new(options.clock, kernels.pool());
    println!("{} {:?}, {} threads", options.isa, options.precision, options.threads);
    println!(
        "{:6} {:>11} {:>5} {:>9} {:>7} {:>8} {:>7} {:>8}",
        "format", "shape", "rows", "ms", "GB/s", "of read", "GOP/s", "of bytes"
    );
    for &format in &options.formats {
        for (outputs, inputs) in SHAPES {
            let copies = matrices(options.clock, &kernels, format, outputs, inputs);
            for rows in [1, 16, 64, 512] {
                measure(&mut machine, &kernels, &copies, rows, options.wide);
            }
        }
    }
    println!(
        "the machine's best: read {:.1} GB/s, byte products {:.0} GOP/s",
        machine.best_read / 1e9,
        machine.best_products / 1e9
    );
}

fn options() -> Options {
    let mut options = Options {
        clock: Clock::Wall,
        formats: Vec::new(),
        threads: 2,
        isa: Isa::best(),
        precision: Precision::Fast,
        wide: false,
    };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        match word.as_str() {
            "--cpu" => options.clock = Clock::Cpu,
            "--wide" => options.wide = true,
            "--exact" => options.precision = Precision::Exact,
            "--threads" => {
                options.threads = words.next().and_then(|word| word.parse().ok()).expect("a number")
            }
            "--isa" => {
                options.isa = words.next().and_then(|word| word.parse().ok()).expect("an instruction set")
            }
            name => {
                let format = Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name));
                options.formats.push(format.unwrap_or_else(|| panic!("{name} is no weight format")));
            }
        }
    }
    if options.formats.is_empty() {
        options.formats = FORMATS.to_vec();
    }
    options
}

/// Copies of one matrix of pseudo-random blocks, as many as fill the working set.
fn matrices(
    clock: Clock,
    kernels: &Kernels,
    format: Format,
    outputs: usize,
    inputs: usize,
) -> Vec<PackedMatrix> {
    let bytes = outputs * format.row_bytes(inputs).expect("the shapes are whole blocks");
    let mut state = 1u32;
    let stored: Vec<u8> = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8 & 0xb7 // no exponent of a scale is all ones
        })
        .collect();
    let mut copies = Vec::new();
    let seconds = clock.seconds_of(|| {
        copies.extend((0..(WORKING_SET / bytes).max(1)).map(|_| {
            PackedMatrix::pack(format, outputs, inputs, &stored, kernels.pool()).expect("the bytes fit")
        }));
    });
    println!(
        "{:6} {outputs:>6}x{inputs} packed at {:.2} GB/s",
        format.name(),
        (copies.len() * bytes) as f64 / seconds / 1e9
    );
    copies
}

/// Bursts of the product alternate with bursts of the machine's peaks. The best of each counts: on a machine shared with others
/// the quietest moment says most about the code.
fn measure(machine: &mut Machine<'_>, kernels: &Kernels, copies: &[PackedMatrix], rows: usize, wide: bool) {
    const TURNS: usize = 15;
    let w = &copies[0];
    let x: Vec<f32> = (0..rows * w.cols()).map(|index| (index as f32 * 0.37).sin()).collect();
    let mut activations = Activations::new();
    let mut out = Memory::zeroed(rows * w.rows());
    let mut next = copies.iter().cycle();
    let (bytes, operations) = (w.bytes() as f64, 2.0 * (rows * w.rows() * w.cols()) as f64);
    let (mut seconds, mut read, mut products) = (f64::INFINITY, 0.0f64, 0.0f64);
    for _ in 0..TURNS {
        let turn = seconds_per_call(machine.clock, Duration::from_millis(10), || {
            kernels.quantize_as(&x, w.cols(), &vec![wide; rows], &mut activations);
            kernels.matmul(next.next().expect("the cycle has no end"), &activations, &mut out);
            black_box(&out[0]);
        });
        (seconds, read, products) =
            (seconds.min(turn), read.max(machine.read()), products.max(machine.multiply()));
    }
    let shape = format!("{}x{}", w.rows(), w.cols());
    println!(
        "{:6} {shape:>11} {rows:>5} {:>9.3} {:>7.1} {:>7.0}% {:>7.0} {:>7.0}%",
        w.format().name(),
        seconds * 1e3,
        bytes / seconds / 1e9,
        100.0 * bytes / seconds / read,
        operations / seconds / 1e9,
        100.0 * operations / seconds / products,
    );
    machine.best_read = machine.best_read.max(read);
    machine.best_products = machine.best_products.max(products);
}

fn seconds_per_call(clock: Clock, span: Duration, mut call: impl FnMut()) -> f64 {
    let (start, mut calls) = (clock.now(), 0);
    while calls == 0 || clock.now() - start < span {
        call();
        calls += 1;
    }
    (clock.now() - start).as_secs_f64() / f64::from(calls)
}

/// The machine's own peaks, measured over and over in short bursts.
struct Machine<'a> {
    clock: Clock,
    pool: &'a Pool,
    memory: Memory<u32>,
    bursts: usize,
    best_read: f64,
    best_products: f64,
}

impl<'a> Machine<'a> {
    fn new(clock: Clock, pool: &'a Pool) -> Self {
        let mut memory = Memory::zeroed(WORKING_SET / 4);
        memory.fill(1);
        Machine { clock, pool, memory, bursts: 0, best_read: 0.0, best_products: 0.0 }
    }

    /// Bytes per second that all threads together read from memory on huge pages. Every burst reads the next part of it.
    fn read(&mut self) -> f64 {
        const BURST: usize = (64 << 20) / 4;
        let burst = &self.memory[self.bursts * BURST % self.memory.len()..][..BURST];
        self.bursts += 1;
        let share = BURST / self.pool.threads();
        let seconds = self.clock.seconds_of(|| {
            self.pool.run(&|thread| {
                // Many sums side by side, so that the loop is a plain stream of vector loads.
                let chunks = burst[thread * share..(thread + 1) * share].as_chunks::<64>().0;
                black_box(chunks.iter().fold([0u32; 64], |mut sums, chunk| {
                    sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
                    sums
                }));
            });
        });
        (share * self.pool.threads() * 4) as f64 / seconds
    }

    /// Operations per second of byte-wise dot products on all threads, NaN where the machine has none.
    fn multiply(&mut self) -> f64 {
        let mut operations = 0.0;
        let seconds = self.clock.seconds_of(|| operations = peaks::byte_products(self.pool));
        operations / seconds
    }
}

#[cfg(target_arch = "x86_64")]
mod peaks {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use kernels::Pool;

    const ROUNDS: u64 = 200_000;

    /// Multiplies in registers on all threads and returns the number of operations, NaN where there are no such products.
    pub fn byte_products(pool: &Pool) -> f64 {
        if !is_x86_feature_detected!("avx512vnni") || !is_x86_feature_detected!("avx512f") {
            return f64::NAN;
        }
        // SAFETY: the features were just found.
        pool.run(&|_| unsafe { rounds() });
        (pool.threads() as u64 * ROUNDS * 16 * 64 * 2) as f64
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn rounds() {
        let mut sums = [_mm512_setzero_si512(); 16];
        let (codes, x) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(5)));
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, codes, x);
            }
        }
        black_box(sums);
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod peaks {
    pub fn byte_products(_pool: &kernels::Pool) -> f64 {
        f64::NAN
    }
}
