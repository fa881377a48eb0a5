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
//! of products in registers (of bytes by `vpdpbusd`, with `--wide` of bf16 by `tdpbf16ps`), measured in alternation with the product.

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
        "format",
        "shape",
        "rows",
        "ms",
        "GB/s",
        "of read",
        "GOP/s",
        if options.wide { "of tiles" } else { "of bytes" }
    );
    for &format in &options.formats {
        for (outputs, inputs) in SHAPES {
            let copies = matrices(options.clock, &kernels, format, outputs, inputs);
            for rows in [1, 16, 64, 512] {
                measure(&mut machine, &kernels, &copies, rows, options.wide);
            }
        }
    }
    println!("the machine's best beside these: read {:.1} GB/s", machine.best_read / 1e9);
    for products in [Products::Bytes, Products::TilesOfBytes, Products::TilesOfBf16] {
        let rate = (0..50).map(|_| machine.multiply(products)).fold(0.0, f64::max);
        println!("its products in registers now: {} {:.0} GOP/s", products.name(), rate / 1e9);
    }
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
    let kind = if wide { Products::TilesOfBf16 } else { Products::Bytes };
    let (mut seconds, mut read, mut products) = (f64::INFINITY, 0.0f64, 0.0f64);
    for _ in 0..TURNS {
        let turn = seconds_per_call(machine.clock, Duration::from_millis(10), || {
            kernels.quantize_as(&x, w.cols(), &vec![wide; rows], &mut activations);
            kernels.matmul(next.next().expect("the cycle has no end"), &activations, &mut out);
            black_box(&out[0]);
        });
        (seconds, read, products) =
            (seconds.min(turn), read.max(machine.read()), products.max(machine.multiply(kind)));
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
}

impl<'a> Machine<'a> {
    fn new(clock: Clock, pool: &'a Pool) -> Self {
        let mut memory = Memory::zeroed(WORKING_SET / 4);
        memory.fill(1);
        Machine { clock, pool, memory, bursts: 0, best_read: 0.0 }
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

    /// Operations per second of such products on all threads, zero where the machine has none.
    fn multiply(&mut self, products: Products) -> f64 {
        let mut operations = 0.0;
        let seconds = self.clock.seconds_of(|| operations = peaks::run(products, self.pool));
        operations / seconds
    }
}

/// What a machine can multiply in registers.
#[derive(Clone, Copy)]
enum Products {
    Bytes,
    TilesOfBytes,
    TilesOfBf16,
}

impl Products {
    fn name(self) -> &'static str {
        match self {
            Products::Bytes => "bytes by vpdpbusd",
            Products::TilesOfBytes => "bytes by tdpbssd",
            Products::TilesOfBf16 => "bf16 by tdpbf16ps",
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod peaks {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use kernels::{Isa, Pool};

    use super::Products;

    const ROUNDS: u64 = 200_000;
    const TILE_ROUNDS: u64 = 20_000;

    /// Multiplies in registers on all threads and returns the number of operations, zero where there are no such products.
    pub fn run(products: Products, pool: &Pool) -> f64 {
        let inputs = match products {
            Products::Bytes => {
                if !is_x86_feature_detected!("avx512vnni") || !is_x86_feature_detected!("avx512f") {
                    return 0.0;
                }
                // SAFETY: the features were just found.
                pool.run(&|_| unsafe { rounds() });
                return (pool.threads() as u64 * ROUNDS * 16 * 64 * 2) as f64;
            }
            Products::TilesOfBytes => 64,
            Products::TilesOfBf16 => 32,
        };
        // What is available has asked the system for the tiles.
        if !Isa::Amx.is_available() {
            return 0.0;
        }
        // SAFETY: there are tiles.
        pool.run(&|_| unsafe { tile_rounds(products) });
        (pool.threads() as u64 * TILE_ROUNDS * 4 * 16 * 16 * inputs * 2) as f64
    }

    /// Four sums of whole tiles, twice two factors.
    ///
    /// # Safety
    /// The process may use tiles.
    unsafe fn tile_rounds(products: Products) {
        #[repr(align(64))]
        struct Shapes([u8; 64]);
        let mut shapes = Shapes([0; 64]);
        shapes.0[0] = 1; // palette
        for register in 0..8 {
            shapes.0[16 + 2 * register] = 64; // bytes in a row
            shapes.0[48 + register] = 16; // rows
        }
        macro_rules! rounds {
            ($multiply:literal) => {
                // SAFETY: the caller vouches for the tiles; the shapes are of palette 1.
                unsafe {
                    asm!(
                        "ldtilecfg [{shapes}]",
                        "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                        "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                        "2:",
                        concat!($multiply, " tmm0, tmm4, tmm6"),
                        concat!($multiply, " tmm1, tmm4, tmm7"),
                        concat!($multiply, " tmm2, tmm5, tmm6"),
                        concat!($multiply, " tmm3, tmm5, tmm7"),
                        "dec {rounds}",
                        "jnz 2b",
                        "tilerelease",
                        shapes = in(reg) &raw const shapes,
                        rounds = inout(reg) TILE_ROUNDS => _,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            };
        }
        match products {
            Products::TilesOfBytes => rounds!("tdpbssd"),
            _ => rounds!("tdpbf16ps"),
        }
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
    pub fn run(_products: super::Products, _pool: &kernels::Pool) -> f64 {
        0.0
    }
}
