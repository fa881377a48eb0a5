//! A backend that says what a script tells it to, and a model small enough to read: one token per byte.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use api::prompt::ModelText;
use api::{Answers, App, Backend, BackendState, Served};
use ledger::{Parts, Stage, StepId, StepRecord, Timeline, now_ns};
use protocol::{Finish, Output, Refusal, Submission, TokenId, TokenLogprob, TopLogprob};
use text::{ChatTemplate, Tokenizer, Vocabulary, VocabularySource};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The end of a turn.
pub const END: TokenId = TokenId(257);
pub const CONTEXT: usize = 512;
const TURN: &str = "<|im_start|>";

/// Tokens 0 to 255 are the bytes; then the two marks of ChatML.
pub fn vocabulary() -> Vocabulary {
    // Byte-level files spell a byte as a character: printable ones as themselves, the rest from U+0100 on.
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = 0x100u32..;
    let spelled = (0..=255u8).map(|byte| match printable(byte) {
        true => char::from(byte).to_string().into_bytes(),
        false => char::from_u32(others.next().unwrap()).unwrap().to_string().into_bytes(),
    });
    let mut tokens: Vec<Vec<u8>> = spelled.collect();
    tokens.extend([TURN.into(), b"<|im_end|>".to_vec(), b"qq".to_vec()]);
    let mut token_types = vec![1; 259];
    token_types[256..258].fill(3);
    Vocabulary::new(VocabularySource {
        model: "gpt2".into(),
        pre: Some("smollm".into()),
        tokens,
        token_types,
        merges: vec![b"q q".to_vec()],
        eos: Some(257),
        ..VocabularySource::default()
    })
    .unwrap()
}

const TEMPLATE: &str = "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}\
    {% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}\
    {% for call in message.tool_calls or [] %}<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>{% endfor %}\
    <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// What a sequence does next.
#[derive(Clone, Debug)]
pub enum Act {
    Say(TokenId),
    Wait(Duration),
    Fail(Refusal),
    /// Says nothing more until it is cancelled.
    Hang,
}

/// Says `text`, byte by byte, and ends the turn.
pub fn saying(text: &str) -> Vec<Act> {
    let bytes = text.bytes().map(|byte| Act::Say(TokenId(u32::from(byte))));
    bytes.chain([Act::Say(END)]).collect()
}

type Script = dyn Fn(&Submission) -> Result<Vec<Act>, Refusal> + Send + Sync;

/// Plays a script for each submission, and remembers what was submitted.
pub struct Scripted {
    script: Box<Script>,
    pub submissions: Mutex<Vec<Submission>>,
    pub cancelled: Arc<AtomicUsize>,
    pub ready: Mutex<Option<String>>,
}

impl Scripted {
    pub fn new(
        script: impl Fn(&Submission) -> Result<Vec<Act>, Refusal> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Scripted {
            script: Box::new(script),
            submissions: Mutex::default(),
            cancelled: Arc::default(),
            ready: Mutex::default(),
        })
    }

    /// Says the same to everyone.
    pub fn saying(text: &'static str) -> Arc<Self> {
        Self::new(move |_| Ok(saying(text)))
    }

    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }
}

impl Backend for Scripted {
    fn submit(&self, submission: Submission) -> Result<Box<dyn Answers>, Refusal> {
        let acts = (self.script)(&submission)?;
        let (sender, outputs) = mpsc::unbounded_channel();
        let (cancel, cancelled) = mpsc::unbounded_channel();
        self.submissions.lock().unwrap().push(submission.clone());
        tokio::spawn(play(acts, submission, sender, cancelled, Arc::clone(&self.cancelled)));
        Ok(Box::new(Playing { outputs, cancel }))
    }

    fn state(&self) -> BackendState {
        let reason = self.ready.lock().unwrap().clone();
        BackendState { ready: reason.is_none(), reason, ..BackendState::default() }
    }

    /// A hundred steps were run.
    fn steps(&self, count: usize) -> Vec<StepRecord> {
        let newest = (1..=100).rev().take(count);
        let step = |id| StepRecord {
            id: StepId(id),
            started_ns: id * 10,
            ended_ns: id * 10 + 5,
            forecast_ns: None,
            members: Vec::new(),
            parts: Parts::default(),
            blocks_free: 1,
            blocks_cached: 0,
            blocks_total: 2,
            waiting: 0,
        };
        let mut steps: Vec<_> = newest.map(step).collect();
        steps.reverse();
        steps
    }

    fn drain(&self) {}
}

struct Playing {
    outputs: mpsc::UnboundedReceiver<Output>,
    cancel: mpsc::UnboundedSender<()>,
}

impl Answers for Playing {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>> {
        self.outputs.poll_recv(context)
    }

    fn cancel(&mut self) {
        let _ = self.cancel.send(());
    }
}

async fn play(
    acts: Vec<Act>,
    submission: Submission,
    sender: mpsc::UnboundedSender<Output>,
    mut cancelled: mpsc::UnboundedReceiver<()>,
    count: Arc<AtomicUsize>,
) {
    let playing = async {
        let mut timeline = Timeline::starting(Stage::Handoff, now_ns());
        timeline.enter(Stage::Prefill, now_ns());
        let max = submission.sampling.max_tokens.unwrap_or(usize::MAX);
        let mut said = 0;
        for act in acts {
            match act {
                Act::Wait(duration) => sleep(duration).await,
                Act::Hang => std::future::pending().await,
                Act::Fail(refusal) => {
                    timeline.enter(Stage::Return, now_ns());
                    let _ = sender.send(Output::Failed { refusal, timeline: std::mem::take(&mut timeline) });
                    return;
                }
                Act::Say(token) => {
                    said += 1;
                    timeline.enter(Stage::Return, now_ns());
                    let finish = match token {
                        END => Some(Finish::Stop),
                        _ if said == max => Some(Finish::Length),
                        _ => None,
                    };
                    let _ = sender.send(Output::Token {
                        token,
                        logprob: submission.sampling.logprobs.map(|top| logprob(token, top)),
                        finish,
                        timeline: std::mem::replace(
                            &mut timeline,
                            Timeline::starting(Stage::Decode, now_ns()),
                        ),
                        step: StepId(said as u64),
                        cached_tokens: 0,
                        miss: None,
                    });
                    if finish.is_some() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = playing => {}
        // Asked to end, or dropped.
        _ = cancelled.recv() => {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = sender.send(Output::Cancelled { timeline: Timeline::default() });
        }
    }
}

fn logprob(token: TokenId, top: usize) -> TokenLogprob {
    let alternative = |rank: usize| TopLogprob {
        token: TokenId((token.0 + rank as u32) % 256),
        logprob: -0.5 - rank as f32,
    };
    TokenLogprob { chosen: alternative(0), top: (0..top).map(alternative).collect() }
}

/// An app that serves the small model, called `tiny`, over `backend`.
pub fn app(backend: Arc<dyn Backend>) -> App {
    let tokenizer = Arc::new(Tokenizer::new(Arc::new(vocabulary())));
    let eog = tokenizer.vocabulary().eog().into();
    let template = Some(ChatTemplate::new(TEMPLATE, Arc::clone(&tokenizer)).unwrap());
    App::new(vec![Served {
        names: vec!["tiny".into(), "org/tiny".into()],
        created: 7,
        context: CONTEXT,
        vocabulary: 320,
        backend,
        text: ModelText { tokenizer, template, eog },
    }])
}
