//! The one suite that every instruction set has to pass: against the reference, over random data and odd shapes.

use crate::testing::{Rng, random_blocks, rng};
use crate::{Activations, Format, Isa, Kernels, PackedMatrix, Pool, Precision, dequantize};

const THREADS: usize = 2;

fn kernels(isa: Isa, precision: Precision) -> Kernels {
    Kernels::new(isa, precision, THREADS).unwrap()
}

/// A random matrix, packed and as floats.
fn matrix(rng: &mut Rng, format: Format, rows: usize, cols: usize) -> (PackedMatrix, Vec<f32>) {
    let bytes = random_blocks(rng, format, rows * cols);
    let mut floats = vec![0.0; rows * cols];
    dequantize(format, &bytes, &mut floats).unwrap();
    (PackedMatrix::pack(format, rows, cols, &bytes, &Pool::new(1).unwrap()).unwrap(), floats)
}

fn product(kernels: &Kernels, w: &PackedMatrix, x: &[f32], rows: usize) -> Vec<f32> {
    let mut activations = Activations::new();
    kernels.quantize(x, rows, w.cols(), &mut activations);
    let mut out = vec![f32::NAN; rows * w.rows()];
    kernels.matmul(w, &activations, &mut out);
    out
}

/// The product in `f64`, and beside each element the sum of its terms' magnitudes.
fn truth(w: &[f32], x: &[f32], cols: usize) -> Vec<(f64, f64)> {
    x.chunks(cols)
        .flat_map(|x| {
            w.chunks(cols).map(move |w| {
                let terms = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
            })
        })
        .collect()
}

/// Shapes `(activation rows, outputs, blocks of inputs)`: on, below and above panels, row blocks and chunks.
const SHAPES: [(usize, usize, usize); 6] =
    [(1, 16, 1), (1, 33, 3), (2, 16, 2), (7, 31, 2), (13, 48, 1), (70, 20, 5)];

fn cols_of(format: Format, blocks: usize) -> usize {
    match format.block_len() {
        1 => 157 * blocks - 1,
        32 => 32 * (3 * blocks - 2),
        length => length * blocks,
    }
}

#[test]
fn exact_products_are_within_rounding_of_the_truth() {
    for isa in Isa::available() {
        for format in Format::ALL {
            for (rows, outputs, blocks) in SHAPES {
                let (cols, mut rng) = (cols_of(format, blocks), rng(&format!("{format}{rows}")));
                let (w, floats) = matrix(&mut rng, format, outputs, cols);
                let x = rng.normals(rows * cols);
                let out = product(&kernels(isa, Precision::Exact), &w, &x, rows);
                for (index, (out, (truth, size))) in out.iter().zip(truth(&floats, &x, cols)).enumerate() {
                    let error = (f64::from(*out) - truth).abs();
                    assert!(
                        error <= 2e-6 * size,
                        "{isa} {format} {rows}x{outputs}x{cols} at {index}: {out} {truth}"
                    );
                }
            }
        }
    }
}

/// The bound: an input is off by at most half its group's scale, 1/254 of the group's largest magnitude.
#[test]
fn fast_products_are_within_the_rounding_of_their_inputs() {
    for isa in Isa::available() {
        for format in Format::ALL {
            for (rows, outputs, blocks) in SHAPES {
                let (cols, mut rng) = (cols_of(format, blocks), rng(&format!("{format}{rows}")));
                let (w, floats) = matrix(&mut rng, format, outputs, cols);
                let x = rng.normals(rows * cols);
                let steps: Vec<f32> = x
                    .chunks(cols)
                    .flat_map(|x| x.chunks(32))
                    .flat_map(|group| {
                        let largest = group.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                        std::iter::repeat_n(largest / 254.0, group.len())
                    })
                    .collect();
                let bounds = truth(&floats, &steps, cols);
                let out = product(&kernels(isa, Precision::Fast), &w, &x, rows);
                for (index, (out, (truth, size))) in out.iter().zip(truth(&floats, &x, cols)).enumerate() {
                    let (error, bound) =
                        ((f64::from(*out) - truth).abs(), bounds[index].1 * 1.001 + 4e-6 * size);
                    assert!(
                        error <= bound,
                        "{isa} {format} {rows}x{outputs}x{cols} at {index}: {out} {truth} +- {bound}"
                    );
                }
            }
        }
    }
}

/// What rounding the inputs costs on the whole: under one part in a hundred of the outputs' size, for ordinary inputs.
#[test]
fn fast_products_differ_from_exact_ones_by_less_than_a_hundredth_in_the_mean_square() {
    for format in Format::ALL.into_iter().filter(|format| format.block_len() > 1) {
        let (mut rng, rows, outputs, cols) = (rng(format.name()), 8, 64, 1024);
        let (w, _) = matrix(&mut rng, format, outputs, cols);
        let x: Vec<f32> = (0..rows * cols).map(|_| (0..4).map(|_| rng.unit()).sum()).collect();
        let exact = product(&kernels(Isa::best(), Precision::Exact), &w, &x, rows);
        let fast = product(&kernels(Isa::best(), Precision::Fast), &w, &x, rows);
        let square =
            |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>();
        let error = square(&mut exact.iter().zip(&fast).map(|(exact, fast)| exact - fast));
        let ratio = (error / square(&mut exact.iter().copied())).sqrt();
        assert!(ratio < 0.01, "{format}: {ratio}");
    }
}

/// Integer sums are exact and the few float operations are written in one order, so here even the last bit is the reference's.
#[test]
fn fast_products_equal_the_reference_bit_for_bit() {
    for format in Format::ALL.into_iter().filter(|format| format.block_len() > 1) {
        for (rows, outputs, blocks) in SHAPES {
            let (cols, mut rng) = (cols_of(format, blocks), rng(&format!("{format}{rows}")));
            let (w, _) = matrix(&mut rng, format, outputs, cols);
            let x = rng.normals(rows * cols);
            let expected = product(&kernels(Isa::Reference, Precision::Fast), &w, &x, rows);
            for isa in Isa::available() {
                let out = product(&kernels(isa, Precision::Fast), &w, &x, rows);
                assert!(same_bits(&out, &expected), "{isa} {format} {rows}x{outputs}x{cols}");
            }
        }
    }
}

fn same_bits(left: &[f32], right: &[f32]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.to_bits() == right.to_bits())
}

#[test]
fn a_row_is_the_same_bits_in_any_batch_and_on_any_number_of_threads() {
    for isa in Isa::available() {
        for precision in [Precision::Exact, Precision::Fast] {
            for format in Format::ALL {
                let (rows, outputs, cols) = (37, 40, cols_of(format, 2));
                let mut rng = rng(format.name());
                let (w, _) = matrix(&mut rng, format, outputs, cols);
                let x = rng.normals(rows * cols);
                let whole = product(&kernels(isa, precision), &w, &x, rows);
                for threads in [1, 3] {
                    let kernels = Kernels::new(isa, precision, threads).unwrap();
                    for batch in [1, 2, 3, 5, 8, 16, 37] {
                        let parts: Vec<f32> = x
                            .chunks(batch * cols)
                            .flat_map(|x| product(&kernels, &w, x, x.len() / cols))
                            .collect();
                        assert!(
                            same_bits(&parts, &whole),
                            "{isa} {precision:?} {format} by {batch} on {threads}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn several_products_at_once_equal_each_alone() {
    for isa in Isa::available() {
        let kernels = kernels(isa, Precision::Fast);
        let (mut rng, cols, rows) = (rng("several"), 512, 9);
        let q = matrix(&mut rng, Format::Q4K, 100, cols).0;
        let k = matrix(&mut rng, Format::Q6K, 16, cols).0;
        let v = matrix(&mut rng, Format::F16, 17, cols).0;
        let x = rng.normals(rows * cols);
        let mut activations = Activations::new();
        kernels.quantize(&x, rows, cols, &mut activations);
        let mut outs = [vec![0.0; rows * 100], vec![0.0; rows * 16], vec![0.0; rows * 17]];
        let [out_q, out_k, out_v] = &mut outs;
        kernels.matmul_many(&mut [(&q, out_q), (&k, out_k), (&v, out_v)], &activations);
        for (w, out) in [&q, &k, &v].into_iter().zip(&outs) {
            assert!(same_bits(out, &product(&kernels, w, &x, rows)), "{isa} {}", w.format());
        }
    }
}

#[test]
fn float_weights_take_the_floats_where_they_are_kept() {
    for isa in Isa::available() {
        let (mut rng, cols, rows) = (rng("floats"), 300, 5);
        let (w, _) = matrix(&mut rng, Format::BF16, 18, cols);
        let x = rng.normals(rows * cols);
        let (fast, exact) = (kernels(isa, Precision::Fast), kernels(isa, Precision::Exact));
        let mut activations = Activations::with_floats();
        fast.quantize(&x, rows, cols, &mut activations);
        let mut out = vec![0.0; rows * 18];
        fast.matmul(&w, &activations, &mut out);
        assert!(same_bits(&out, &product(&exact, &w, &x, rows)), "{isa}");
        assert!(!same_bits(&out, &product(&fast, &w, &x, rows)), "{isa}");
    }
}

#[test]
fn quantized_activations_equal_the_reference_bit_for_bit() {
    let mut rng = rng("quantize");
    for cols in [1, 15, 16, 17, 31, 32, 33, 64, 500, 4096] {
        for scale in [1.0, 1e-37, 1e-30, 1e-29, 1e30, f32::MAX / 200.0, 0.0] {
            let mut x: Vec<f32> = rng.normals(cols * 2).iter().map(|value| value * scale).collect();
            x[cols / 2] = 0.5 * scale; // ties are likely beside a largest value of 127 steps
            let prepare = |isa| {
                let mut activations = Activations::new();
                kernels(isa, Precision::Fast).quantize(&x, 2, cols, &mut activations);
                format!("{activations:?}")
            };
            for isa in Isa::available() {
                assert_eq!(prepare(isa), prepare(Isa::Reference), "{isa} {cols} {scale}");
            }
        }
    }
}

#[test]
fn what_is_not_finite_shows_in_its_row_and_in_no_other() {
    for isa in Isa::available() {
        for precision in [Precision::Exact, Precision::Fast] {
            for format in [Format::Q4K, Format::Q6K, Format::Q8_0, Format::Q4_1, Format::F16] {
                for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let (mut rng, cols) = (rng("finite"), 512);
                    let (w, _) = matrix(&mut rng, format, 16, cols);
                    let mut x = rng.normals(3 * cols);
                    x[cols + 77] = value;
                    let out = product(&kernels(isa, precision), &w, &x, 3);
                    let rows: Vec<bool> =
                        out.chunks(16).map(|row| row.iter().all(|value| value.is_finite())).collect();
                    assert_eq!(rows, [true, false, true], "{isa} {precision:?} {format} {value}");
                }
            }
        }
    }
}

fn wide_product(kernels: &Kernels, w: &PackedMatrix, x: &[f32], wide: &[bool]) -> Vec<f32> {
    let mut activations = Activations::new();
    kernels.quantize_as(x, w.cols(), wide, &mut activations);
    let mut out = vec![f32::NAN; wide.len() * w.rows()];
    kernels.matmul(w, &activations, &mut out);
    out
}

/// Products of tiles that are denormal are zero; so many of them make this at most.
const DENORMAL: f64 = 1e-36;

/// The bound: inputs and weights are each off by at most half a unit in the eighth binary place, one part in 256.
#[test]
fn wide_products_are_within_the_rounding_of_their_factors() {
    let kernels = kernels(Isa::best(), Precision::Fast);
    for format in Format::ALL.into_iter().filter(|format| format.block_len() > 1) {
        for (rows, outputs, blocks) in SHAPES.into_iter().chain([(16, 64, 9), (33, 17, 40), (48, 150, 2)]) {
            let (cols, mut rng) = (cols_of(format, blocks), rng(&format!("{format}{rows}")));
            let (w, floats) = matrix(&mut rng, format, outputs, cols);
            let x = rng.normals(rows * cols);
            let out = wide_product(&kernels, &w, &x, &vec![true; rows]);
            if !kernels.backend.has_wide_products() {
                assert!(
                    same_bits(&out, &product(&kernels, &w, &x, rows)),
                    "{format}: without tiles they are like others"
                );
                continue;
            }
            for (index, (out, (truth, size))) in out.iter().zip(truth(&floats, &x, cols)).enumerate() {
                let (error, bound) =
                    ((f64::from(*out) - truth).abs(), size * (2.0 / 256.0 + 3e-5) + DENORMAL);
                assert!(
                    error <= bound,
                    "{format} {rows}x{outputs}x{cols} at {index}: {out} {truth} +- {bound}"
                );
            }
        }
    }
}

#[test]
fn a_rows_result_depends_on_its_own_kind_alone() {
    for isa in Isa::available() {
        for format in Format::ALL.into_iter().filter(|format| format.block_len() > 1) {
            let (rows, outputs, cols) = (75, 90, cols_of(format, 2));
            let mut rng = rng(format.name());
            let (w, _) = matrix(&mut rng, format, outputs, cols);
            let x = rng.normals(rows * cols);
            let kinds: Vec<bool> = (0..rows).map(|_| rng.unit() > 0.3).collect();
            let mixed = wide_product(&kernels(isa, Precision::Fast), &w, &x, &kinds);
            for threads in [1, 3] {
                let kernels = Kernels::new(isa, Precision::Fast, threads).unwrap();
                for batch in [1, 2, 17, 31, 32, 48] {
                    let parts: Vec<f32> = (x.chunks(batch * cols).zip(kinds.chunks(batch)))
                        .flat_map(|(x, kinds)| wide_product(&kernels, &w, x, kinds))
                        .collect();
                    assert!(same_bits(&parts, &mixed), "{isa} {format} by {batch} on {threads}");
                }
            }
            let narrow = product(&kernels(isa, Precision::Fast), &w, &x, rows);
            for (row, wide) in kinds.iter().enumerate().filter(|(_, wide)| !**wide) {
                let row = row * outputs..(row + 1) * outputs;
                assert!(
                    same_bits(&mixed[row.clone()], &narrow[row]),
                    "{isa} {format}: {wide} is like any other"
                );
            }
        }
    }
}

#[test]
fn what_is_not_finite_shows_in_its_wide_row_and_in_no_other() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (mut rng, cols) = (rng("wide finite"), 512);
        let (w, _) = matrix(&mut rng, Format::Q4K, 16, cols);
        let mut x = rng.normals(3 * cols);
        x[cols + 77] = value;
        let out = wide_product(&kernels(Isa::best(), Precision::Fast), &w, &x, &[true; 3]);
        let rows: Vec<bool> = out.chunks(16).map(|row| row.iter().all(|value| value.is_finite())).collect();
        assert_eq!((rows[0], rows[2]), (true, true), "{value}");
        assert!(!rows[1], "{value}");
    }
}
