//! Norms, activations, softmax and sums on every instruction set, against double precision and against themselves shared out.

use kernels::{Isa, Kernels, Precision};

const LENGTHS: [usize; 12] = [1, 2, 7, 15, 16, 17, 63, 64, 65, 576, 1537, 20_000];

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 % 2003) as f32 - 1000.0) / 125.0).collect() // -8 to 8
}

/// Calls `operation` with a row as both of its operands.
fn with_itself(operation: impl Fn(&Kernels, &mut [f32], &[f32])) -> impl Fn(&Kernels, &mut [f32]) {
    move |kernels, x| {
        let same = x.to_vec();
        operation(kernels, x, &same);
    }
}

fn kernels(isa: Isa, threads: usize) -> Kernels {
    Kernels::new(isa, Precision::Exact, threads).expect("an available instruction set")
}

/// Runs `operation` for every instruction set on each length and compares with `textbook`, number by number, within
/// `relative` of the number plus `absolute`.
fn check(
    (relative, absolute): (f64, f64),
    operation: impl Fn(&Kernels, &mut [f32]),
    textbook: impl Fn(&[f64]) -> Vec<f64>,
) {
    for isa in Isa::available() {
        for len in LENGTHS {
            let mut x = numbers(len);
            let expected = textbook(&x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            operation(&kernels(isa, 2), &mut x);
            for (i, (&got, expected)) in x.iter().zip(expected).enumerate() {
                let bound = relative * expected.abs() + absolute;
                assert!(
                    (f64::from(got) - expected).abs() <= bound,
                    "{isa} [{i}] of {len}: {got}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn rms_norm_is_the_row_over_its_root_mean_square() {
    let operation = |kernels: &Kernels, x: &mut [f32]| {
        let (row, weight) = (x.to_vec(), vec![0.75; x.len()]);
        kernels.rms_norm(&row, &weight, 1e-5, x);
    };
    check((1e-6, 0.0), operation, |x| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().map(|x| x / (mean + 1e-5).sqrt() * 0.75).collect()
    });
}

#[test]
fn silu_and_gelu_gate_what_is_above_them() {
    let silu = |kernels: &Kernels, x: &mut [f32]| kernels.silu_mul(x, &vec![1.5; x.len()]);
    check((4e-7, 0.0), silu, |x| x.iter().map(|x| 1.5 * x / (1.0 + (-x).exp())).collect());
    let gelu = |kernels: &Kernels, x: &mut [f32]| kernels.gelu_mul(x, &vec![1.5; x.len()]);
    check((2e-6, 1e-12), gelu, |x| {
        let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        x.iter().map(|&x| 1.5 * 0.5 * x * (1.0 + inner(x).tanh())).collect()
    });
}

#[test]
fn softcap_keeps_numbers_within_the_cap() {
    check(
        (0.0, 3.0 * 3e-7),
        |kernels, x| kernels.softcap(x, 3.0),
        |x| x.iter().map(|x| 3.0 * (x / 3.0).tanh()).collect(),
    );
}

#[test]
fn softmax_is_normalized_exponentials() {
    let operation = |kernels: &Kernels, x: &mut [f32]| kernels.softmax(x, x.len());
    check((2e-6, 0.0), operation, |x| {
        let greatest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - greatest).exp()).sum();
        x.iter().map(|x| (x - greatest).exp() / sum).collect()
    });
}

#[test]
fn sums_and_scaling_are_what_they_say() {
    check((1e-7, 0.0), with_itself(Kernels::add), |x| x.iter().map(|x| x + x).collect());
    check(
        (1e-7, 0.0),
        |kernels, x| kernels.scale(x, 0.3),
        |x| x.iter().map(|x| x * f64::from(0.3f32)).collect(),
    );
    let biased = |kernels: &Kernels, x: &mut [f32]| kernels.add_bias(x, &vec![0.5; x.len()]);
    check((1e-7, 0.0), biased, |x| x.iter().map(|x| x + 0.5).collect());
}

/// Whatever the operation does to many rows at once, it does to each row alone, bit for bit, with one to three threads.
fn check_rows(width: usize, operation: impl Fn(&Kernels, &mut [f32])) {
    let x = numbers(101 * width);
    for isa in Isa::available() {
        let mut alone = x.clone();
        let single = kernels(isa, 1);
        alone.chunks_exact_mut(width).for_each(|row| operation(&single, row));
        for threads in 1..=3 {
            let mut together = x.clone();
            operation(&kernels(isa, threads), &mut together);
            assert!(together == alone, "{isa} with {threads} threads, rows of {width}");
        }
    }
}

#[test]
fn a_row_gives_the_same_bits_alone_and_shared_out() {
    for width in [163, 576] {
        let weight = numbers(width);
        check_rows(width, |kernels, x| {
            let rows = x.to_vec();
            kernels.rms_norm(&rows, &weight, 1e-6, x);
        });
        check_rows(width, with_itself(Kernels::silu_mul));
        check_rows(width, with_itself(Kernels::gelu_mul));
        check_rows(width, |kernels, x| kernels.softcap(x, 2.0));
        check_rows(width, |kernels, x| kernels.softmax(x, width));
        check_rows(width, with_itself(Kernels::add));
        check_rows(width, |kernels, x| kernels.add_bias(x, &weight));
    }
}

#[test]
fn extreme_numbers_do_not_become_nan_and_nan_stays() {
    for isa in Isa::available() {
        let kernels = kernels(isa, 1);
        let mut x = vec![0.0; 20];
        x[..4].copy_from_slice(&[1e30, -1e30, f32::NAN, -200.0]);
        kernels.silu_mul(&mut x, &[1.0; 20]);
        assert_eq!((x[0], x[1].abs(), x[2].is_nan()), (1e30, 0.0, true), "{isa}");
        assert!(x[3].abs() < 1e-35, "{isa}");
        let mut x = [-1e30, 0.0, f32::NEG_INFINITY, 1e30];
        kernels.softmax(&mut x, 4);
        assert_eq!(x, [0.0, 0.0, 0.0, 1.0], "{isa}");
        let mut x = vec![1e30; 40];
        kernels.softcap(&mut x, 50.0);
        assert!(x.iter().all(|&x| x == 50.0), "{isa}");
    }
}
