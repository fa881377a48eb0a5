pub mod batch {
    use std::ops::Range;
    #[derive(Clone, Debug, Default)]
    pub struct Batch {
        pub tokens: Vec<u32>,
        pub sequences: Vec<BatchSequence>,
        pub logit_rows: Vec<usize>,
    }
    #[derive(Clone, Debug)]
    pub struct BatchSequence {
        pub rows: Range<usize>,
        pub first_position: usize,
        pub blocks: Vec<u32>,
    }
    #[derive(Clone, Debug)]
    pub struct Logits {
        pub rows: usize,
        pub vocabulary: usize,
        pub values: Vec<f32>, // [rows, vocabulary]
    }
}
