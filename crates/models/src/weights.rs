//! A model's weights: matrices repacked for the kernels, vectors as f32.
//!
//! **Invariant:** every tensor has the shape that the configuration asks for, and no tensor of the file is left unread,
//! so that a model with an unknown part is refused and never half computed.

use std::collections::BTreeSet;

use kernels::{Format, PackedMatrix, Pool};

use crate::config::Config;
use crate::error::LoadError;
use crate::families::Biases;
use crate::gguf::{Gguf, GgufError, TensorInfo};

/// Told how many bytes of how many are packed.
pub type Progress<'a> = &'a dyn Fn(usize, usize);

/// All weights of a model.
pub struct Weights {
    pub embedding: Embedding,
    pub layers: Vec<LayerWeights>,
    pub final_norm: Vec<f32>, // [width]
    pub head: PackedMatrix,   // [vocabulary, width]
    /// Divides the frequencies of RoPE; one per pair of values.
    pub rope_factors: Option<Vec<f32>>, // [rope dims / 2]
}

/// Where the embeddings of tokens are looked up.
pub enum Embedding {
    /// In the output head, which is the same matrix.
    Head,
    /// In rows of their own. Only single rows are ever read, so they stay as the file stores them.
    Stored { format: Format, row_bytes: usize, bytes: Vec<u8> },
}

/// The weights of one layer.
pub struct LayerWeights {
    pub attention_norm: Vec<f32>,              // [width]
    pub query: Projection,                     // [heads * head_dim, width]
    pub key: Projection,                       // [kv_heads * head_dim, width]
    pub value: Projection,                     // [kv_heads * head_dim, width]
    pub query_norm: Option<Vec<f32>>,          // [head_dim]
    pub key_norm: Option<Vec<f32>>,            // [head_dim]
    pub output: Projection,                    // [width, heads * head_dim]
    pub post_attention_norm: Option<Vec<f32>>, // [width]
    pub ffn_norm: Vec<f32>,                    // [width]
    pub gate: PackedMatrix,                    // [ffn, width]
    pub up: PackedMatrix,                      // [ffn, width]
    pub down: PackedMatrix,                    // [width, ffn]
    pub post_ffn_norm: Option<Vec<f32>>,       // [width]
}

/// A matrix and what is added to its product.
pub struct Projection {
    pub matrix: PackedMatrix,
    pub bias: Option<Vec<f32>>, // [matrix rows]
}

impl Weights {
    /// Reads and repacks everything with all threads of the pool.
    pub fn load(
        gguf: &Gguf,
        config: &Config,
        pool: &Pool,
        progress: Option<Progress<'_>>,
    ) -> Result<Weights, LoadError> {
        let mut loader = Loader::new(gguf, pool, progress);
        let width = config.width;
        let (embedding, head) = if config.tied_head {
            (Embedding::Head, loader.matrix("token_embd.weight", config.vocabulary, width)?)
        } else {
            let embedding = loader.stored("token_embd.weight", config.vocabulary, width)?;
            (embedding, loader.matrix("output.weight", config.vocabulary, width)?)
        };
        let final_norm = loader.vector("output_norm.weight", width)?;
        let rope_factors = match config.rope.has_factors {
            true => Some(rope_factors(&mut loader, config.rope.dims / 2)?),
            false => None,
        };
        // Not reserved: the count is only a claim until the tensors turn out to be there.
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            layers.push(LayerWeights::load(&mut loader, config, layer)?);
        }
        loader.refuse_unread()?;
        Ok(Weights { embedding, layers, final_norm, head, rope_factors })
    }

    /// Bytes held by the matrices. The vectors are too small to matter.
    pub fn bytes(&self) -> usize {
        let stored = match &self.embedding {
            Embedding::Head => 0,
            Embedding::Stored { bytes, .. } => bytes.len(),
        };
        stored + self.head.bytes() + self.layers.iter().map(LayerWeights::bytes).sum::<usize>()
    }

    /// Whether some matrix is not quantized.
    pub fn has_floats(&self) -> bool {
        let float =
            |matrix: &PackedMatrix| matches!(matrix.format(), Format::F32 | Format::F16 | Format::BF16);
        float(&self.head) || self.layers.iter().flat_map(LayerWeights::matrices).any(float)
    }

    /// Writes the embedding of `token` to `out`, which has one value per column.
    pub fn embed(&self, token: u32, out: &mut [f32]) {
        match &self.embedding {
            Embedding::Head => self.head.dequantize_row(token as usize, out),
            Embedding::Stored { format, row_bytes, bytes } => {
                let start = token as usize * row_bytes;
                kernels::dequantize(*format, &bytes[start..start + row_bytes], out)
                    .expect("the row's length was checked against the format at load");
            }
        }
    }
}

impl LayerWeights {
    fn load(loader: &mut Loader<'_>, config: &Config, layer: usize) -> Result<LayerWeights, LoadError> {
        let Config { width, ffn, head_dim, family, .. } = *config;
        let (queries, keys) = (config.heads * head_dim, config.kv_heads * head_dim);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let head_norm = |loader: &mut Loader<'_>, part: &str| match family.qk_norm {
            true => loader.vector(&name(part), head_dim).map(Some),
            false => Ok(None),
        };
        let post_norm = |loader: &mut Loader<'_>, part: &str| match family.post_norms {
            true => loader.vector(&name(part), width).map(Some),
            false => Ok(None),
        };
        Ok(LayerWeights {
            attention_norm: loader.vector(&name("attn_norm.weight"), width)?,
            query: loader.projection(&name("attn_q"), queries, width, family.attention_biases)?,
            key: loader.projection(&name("attn_k"), keys, width, family.attention_biases)?,
            value: loader.projection(&name("attn_v"), keys, width, family.attention_biases)?,
            query_norm: head_norm(loader, "attn_q_norm.weight")?,
            key_norm: head_norm(loader, "attn_k_norm.weight")?,
            output: loader.projection(&name("attn_output"), width, queries, Biases::Optional)?,
            post_attention_norm: post_norm(loader, "post_attention_norm.weight")?,
            ffn_norm: loader.vector(&name("ffn_norm.weight"), width)?,
            gate: loader.matrix(&name("ffn_gate.weight"), ffn, width)?,
            up: loader.matrix(&name("ffn_up.weight"), ffn, width)?,
            down: loader.matrix(&name("ffn_down.weight"), width, ffn)?,
            post_ffn_norm: post_norm(loader, "post_ffw_norm.weight")?,
        })
    }

    fn bytes(&self) -> usize {
        self.matrices().iter().map(|matrix| matrix.bytes()).sum()
    }

    fn matrices(&self) -> [&PackedMatrix; 7] {
        let [query, key, value, output] =
            [&self.query, &self.key, &self.value, &self.output].map(|p| &p.matrix);
        [query, key, value, output, &self.gate, &self.up, &self.down]
    }
}

fn rope_factors(loader: &mut Loader<'_>, pairs: usize) -> Result<Vec<f32>, LoadError> {
    const NAME: &str = "rope_freqs.weight";
    let factors = loader.vector(NAME, pairs)?;
    match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        Some(factor) => {
            Err(GgufError::tensor(NAME, format!("holds {factor}, not a finite number above 0")).into())
        }
        None => Ok(factors),
    }
}

/// Takes tensors out of a file, checks their shapes, and remembers which were taken.
struct Loader<'a> {
    gguf: &'a Gguf,
    pool: &'a Pool,
    progress: Option<Progress<'a>>,
    read: BTreeSet<&'a str>,
    bytes_done: usize,
    bytes_total: usize,
}

impl<'a> Loader<'a> {
    fn new(gguf: &'a Gguf, pool: &'a Pool, progress: Option<Progress<'a>>) -> Self {
        let bytes_total = gguf.tensors().iter().map(|tensor| tensor.bytes).sum();
        Loader { gguf, pool, progress, read: BTreeSet::new(), bytes_done: 0, bytes_total }
    }

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<PackedMatrix, LoadError> {
        let tensor = self.take(name, &[cols, rows])?;
        let packed = PackedMatrix::pack(tensor.format, rows, cols, self.gguf.data(tensor), self.pool)
            .map_err(|source| LoadError::Pack { tensor: name.to_owned(), source })?;
        self.report(tensor);
        Ok(packed)
    }

    fn stored(&mut self, name: &str, rows: usize, cols: usize) -> Result<Embedding, LoadError> {
        let tensor = self.take(name, &[cols, rows])?;
        let bytes = self.gguf.data(tensor).to_vec();
        self.report(tensor);
        Ok(Embedding::Stored { format: tensor.format, row_bytes: tensor.bytes / rows, bytes })
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.take(name, &[length])?;
        let mut values = vec![0.0; length];
        kernels::dequantize(tensor.format, self.gguf.data(tensor), &mut values)
            .map_err(|source| LoadError::Pack { tensor: name.to_owned(), source })?;
        self.report(tensor);
        Ok(values)
    }

    fn projection(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        biases: Biases,
    ) -> Result<Projection, LoadError> {
        let matrix = self.matrix(&format!("{name}.weight"), rows, cols)?;
        let bias = format!("{name}.bias");
        let bias = match biases {
            Biases::Optional if self.gguf.tensor(&bias).is_none() => None,
            _ => Some(self.vector(&bias, rows)?),
        };
        Ok(Projection { matrix, bias })
    }

    /// The tensor of this name, if it has these dimensions (the contiguous one first).
    fn take(&mut self, name: &str, dimensions: &[usize]) -> Result<&'a TensorInfo, GgufError> {
        let tensor = self.gguf.tensor(name).ok_or_else(|| GgufError::tensor(name, "is missing"))?;
        // Trailing dimensions of 1 change nothing.
        let (shape, rest) = tensor.dimensions.split_at(dimensions.len().min(tensor.dimensions.len()));
        if shape != dimensions || rest.iter().any(|dimension| *dimension != 1) {
            let found = &tensor.dimensions;
            let problem = format!("has shape {found:?}, but the model's sizes ask for {dimensions:?}");
            return Err(GgufError::tensor(name, problem));
        }
        self.gguf.check_still_whole()?;
        self.read.insert(&tensor.name);
        Ok(tensor)
    }

    fn report(&mut self, tensor: &TensorInfo) {
        self.bytes_done += tensor.bytes;
        if let Some(progress) = self.progress {
            progress(self.bytes_done, self.bytes_total);
        }
    }

    fn refuse_unread(&self) -> Result<(), LoadError> {
        const NAMED: usize = 3;
        let unread = self.gguf.tensors().iter().map(|tensor| tensor.name.as_str());
        let unread: Vec<&str> = unread.filter(|name| !self.read.contains(name)).collect();
        if unread.is_empty() {
            return Ok(());
        }
        let named: Vec<&str> = unread.iter().take(NAMED).copied().collect();
        let more = if unread.len() > NAMED { ", ..." } else { "" };
        Err(LoadError::Unsupported(format!(
            "{} tensors that this architecture does not have here: {named:?}{more}",
            unread.len()
        )))
    }
}
