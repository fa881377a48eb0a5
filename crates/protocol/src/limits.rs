//! Bounds on what a client may send, each with a name and a default.

/// Reaching one of these is a typed refusal.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Messages in a conversation.
    pub messages_max: usize,
    /// Tools offered in one request.
    pub tools_max: usize,
    /// Choices in one request, over all its prompts.
    pub choices_max: usize,
    /// Prompts in one completions request.
    pub prompts_max: usize,
    /// Stop strings in one request.
    pub stop_strings_max: usize,
    /// Bytes of one stop string.
    pub stop_string_bytes_max: usize,
    /// Nested arrays and objects in a request's JSON.
    pub json_depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_bytes_max: 16 << 20,
            messages_max: 16_384,
            tools_max: 1_024,
            choices_max: 64,
            prompts_max: 64,
            stop_strings_max: 1_024,
            stop_string_bytes_max: 4_096,
            json_depth_max: 64,
        }
    }
}
