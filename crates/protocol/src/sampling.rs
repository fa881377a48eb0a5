//! Sampling parameters, with their ranges.

use crate::{Refusal, TokenId};

/// How tokens are chosen from logits. The order of operations is: logit bias, penalties, minimum length, then (unless
/// greedy) temperature, top-k, top-p, min-p, and a draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 (or anything under [`Sampling::GREEDY_BELOW`]) takes the most probable token.
    pub temperature: f32,
    /// Keep the `top_k` most probable tokens; `None` keeps all.
    pub top_k: Option<u32>,
    /// Keep the smallest set of most probable tokens whose probabilities reach `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less probable than `min_p` times the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of each token seen in the output.
    pub presence_penalty: f32,
    /// Subtracted from the logit of each token, times how often it is in the output.
    pub frequency_penalty: f32,
    /// The same seed gives the same tokens, whatever else runs; `None` draws one.
    pub seed: Option<u64>,
    /// Added to logits before anything else.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Tokens that end the answer, besides the model's own end-of-generation tokens.
    pub stop_token_ids: Vec<TokenId>,
    /// End-of-generation tokens do not end the answer.
    pub ignore_eos: bool,
    /// No end-of-generation or stop token before this many tokens.
    pub min_tokens: usize,
    /// How many new tokens at most; `None`: until the context is full.
    pub max_tokens: Option<usize>,
    /// Report log-probabilities: `Some(k)` gives the chosen token's and the `k` best.
    pub logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            min_tokens: 0,
            max_tokens: None,
            logprobs: None,
        }
    }
}

impl Sampling {
    /// Temperatures below this are greedy: dividing logits by less overflows.
    pub const GREEDY_BELOW: f32 = 1e-5;
    /// The highest temperature taken.
    pub const TEMPERATURE_MAX: f32 = 100.0;
    /// Entries that `logit_bias` may have.
    pub const LOGIT_BIAS_MAX: usize = 1024;
    /// Alternatives that `top_logprobs` may ask for.
    pub const LOGPROBS_MAX: usize = 20;

    /// Whether the most probable token is taken without a draw.
    pub fn is_greedy(&self) -> bool {
        self.temperature < Self::GREEDY_BELOW || self.top_k == Some(1) || self.top_p <= 0.0
    }

    /// Checks every range.
    ///
    /// # Errors
    /// A [`Refusal`] that names the field.
    pub fn validate(&self, vocabulary: usize) -> Result<(), Refusal> {
        check("temperature", self.temperature, 0.0, Self::TEMPERATURE_MAX)?;
        check("top_p", self.top_p, 0.0, 1.0)?;
        check("min_p", self.min_p, 0.0, 1.0)?;
        check("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        check("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        check("repetition_penalty", self.repetition_penalty, 0.01, 10.0)?;
        if self.logit_bias.len() > Self::LOGIT_BIAS_MAX {
            let message =
                format!("has {} entries; at most {} are taken", self.logit_bias.len(), Self::LOGIT_BIAS_MAX);
            return Err(Refusal::invalid("logit_bias", message));
        }
        for (token, bias) in &self.logit_bias {
            check("logit_bias", *bias, -100.0, 100.0)?;
            check_token("logit_bias", *token, vocabulary)?;
        }
        for token in &self.stop_token_ids {
            check_token("stop_token_ids", *token, vocabulary)?;
        }
        if self.logprobs.is_some_and(|count| count > Self::LOGPROBS_MAX) {
            let message = format!("must be at most {}", Self::LOGPROBS_MAX);
            return Err(Refusal::invalid("top_logprobs", message));
        }
        Ok(())
    }
}

fn check(field: &str, value: f32, low: f32, high: f32) -> Result<(), Refusal> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Refusal::invalid(field, format!("is {value}; it must be between {low} and {high}")))
}

fn check_token(field: &str, token: TokenId, vocabulary: usize) -> Result<(), Refusal> {
    if token.index() < vocabulary {
        return Ok(());
    }
    Err(Refusal::invalid(field, format!("names token {token}, but the vocabulary has {vocabulary} tokens")))
}
