//! The ledger's side of one request: which token is where, for each of its choices, until the account is closed.
//!
//! **Invariant:** every frame that carries tokens is matched with the moment it was handed to the socket, in order.

use std::collections::VecDeque;
use std::time::Duration;

use crate::authorize::Tenant;
use ledger::clock::{Ns, unix_ns};
use ledger::{
    Account, ChoiceRecord, Outcome, PromptAccount, Record, RequestId, Stage, StepId, Timeline, now_ns,
};

/// A request between its first byte in and its last byte out.
pub struct Life {
    pub id: RequestId,
    /// Who may see the account.
    pub tenant: Tenant,
    pub model: String,
    pub prompt: PromptAccount,
    pub ignored: Vec<String>,
    /// The way to the engine, shared by all choices.
    opening: Timeline,
    opened: Ns,
    choices: Vec<ChoiceLife>,
    writing: VecDeque<Writing>,
}

/// One choice's account, and the tokens that are on their way to the next delivery.
#[derive(Clone)]
struct ChoiceLife {
    account: Account,
    coming: Timeline,
    generated: usize,
    step: Option<StepId>,
    finish: Option<&'static str>,
}

/// A frame that was handed to the connection but not yet to the socket.
struct Writing {
    frame: u64,
    choice: usize,
    timeline: Timeline,
    tokens: usize,
    step: Option<StepId>,
}

impl Life {
    /// A request whose first byte arrived at `first_byte` is in `accept`.
    pub fn begin(id: RequestId, first_byte: Ns) -> Self {
        Life {
            id,
            tenant: Tenant::default(),
            model: String::new(),
            prompt: PromptAccount::default(),
            ignored: Vec::new(),
            opening: Timeline::starting(Stage::Accept, first_byte),
            opened: first_byte,
            choices: Vec::new(),
            writing: VecDeque::new(),
        }
    }

    /// How long ago its first byte arrived.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(now_ns().saturating_sub(self.opened))
    }

    /// On the way to the engine: the request leaves its stage and enters `stage`.
    pub fn enter(&mut self, stage: Stage) {
        self.opening.enter(stage, now_ns());
        // The hand-off is the backend's to delay, since it ends there.
        if stage != Stage::Handoff {
            ledger::delay::inject(stage);
        }
    }

    /// The request is refused: what follows is the refusal's own way to the client.
    pub fn refuse(&mut self) {
        let now = now_ns();
        self.opening.enter(Stage::Write, now);
        for choice in &mut self.choices {
            choice.coming.enter(Stage::Write, now);
        }
        ledger::delay::inject(Stage::Write);
    }

    /// From here on, each choice has an account of its own.
    pub fn fork(&mut self, choices: usize) {
        let choice = ChoiceLife {
            account: Account::open(self.opened),
            coming: self.opening.clone(),
            generated: 0,
            step: None,
            finish: None,
        };
        self.choices = vec![choice; choices];
    }

    /// A token of `choice` came back from the engine and enters `detokenize`.
    pub fn received(&mut self, choice: usize, timeline: Timeline, step: StepId) {
        let life = &mut self.choices[choice];
        life.coming.append(timeline);
        life.coming.enter(Stage::Detokenize, now_ns());
        life.generated += 1;
        life.step = Some(step);
        ledger::delay::inject(Stage::Detokenize);
    }

    /// The engine ended `choice` without a further token.
    pub fn ended(&mut self, choice: usize, timeline: Timeline) {
        self.choices[choice].coming.append(timeline);
    }

    /// Why `choice` finished.
    pub fn finished(&mut self, choice: usize, finish: &'static str) {
        self.choices[choice].finish = Some(finish);
    }

    /// What is coming for `choice` is about to be written. Where nothing is (its tokens are in the answer already), the
    /// writing began with the last of them.
    pub fn enter_write(&mut self, choice: usize) {
        let life = &mut self.choices[choice];
        let since = if life.coming.is_empty() { life.account.delivered() } else { now_ns() };
        life.coming.enter(Stage::Write, since);
        ledger::delay::inject(Stage::Write);
    }

    /// What is coming for `choice` goes out with `frame`, `tokens` of it complete; frames that close an answer carry nothing and are
    /// charged to `write` from the delivery before them.
    pub fn wrote(&mut self, choice: usize, tokens: usize, frame: u64) {
        let life = &mut self.choices[choice];
        let timeline = std::mem::take(&mut life.coming);
        self.writing.push_back(Writing { frame, choice, timeline, tokens, step: life.step });
    }

    /// A whole answer: what is coming for `choice` was appended to it, `tokens` of it complete.
    pub fn appended(&mut self, choice: usize, tokens: usize) {
        let life = &mut self.choices[choice];
        let timeline = std::mem::take(&mut life.coming);
        life.account.deliver(&timeline, tokens, life.step, now_ns());
    }

    /// All frames up to `frame` were handed to the socket at `moment`.
    pub fn delivered(&mut self, frame: u64, moment: Ns) {
        while self.writing.front().is_some_and(|writing| writing.frame <= frame) {
            let Some(writing) = self.writing.pop_front() else { break };
            let account = &mut self.choices[writing.choice].account;
            match writing.timeline.is_empty() {
                true => account.settle(Stage::Write, moment),
                false => account.deliver(&writing.timeline, writing.tokens, writing.step, moment),
            }
        }
    }

    /// Whether frames with tokens wait for their delivery.
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Stages so far, for the head of an answer.
    pub fn stages_so_far(&self) -> Vec<ledger::Charge> {
        let (accounts, followed) = self.accounts_at(now_ns());
        accounts[followed].stages()
    }

    /// The account as it stands: for an answer that carries it.
    pub fn snapshot(&self) -> Record {
        let mut record = self.record(Outcome::Finished, 200, None, now_ns());
        record.open = true;
        record
    }

    /// Closes the account at `last_byte`. What was still coming is charged where it was.
    pub fn close(self, outcome: Outcome, status: u16, refusal: Option<String>, last_byte: Ns) -> Record {
        let record = self.record(outcome, status, refusal, last_byte);
        let overhead_ns = now_ns().saturating_sub(last_byte);
        Record { overhead_ns, ..record }
    }

    /// All choices' accounts, and which of them the request's own follows: the one that closed last. It alone lasts until
    /// `last_byte`, with what is still coming charged where it is.
    fn accounts_at(&self, last_byte: Ns) -> (Vec<Account>, usize) {
        let mut accounts: Vec<Account> = self.choices.iter().map(|choice| choice.account.clone()).collect();
        if accounts.is_empty() {
            let mut account = Account::open(self.opened);
            account.deliver(&self.opening, 0, None, last_byte);
            accounts.push(account);
        }
        let followed =
            (0..accounts.len()).rev().max_by_key(|index| accounts[*index].delivered()).unwrap_or(0);
        if let Some(choice) = self.choices.get(followed)
            && accounts[followed].delivered() < last_byte
        {
            match choice.coming.is_empty() {
                true => accounts[followed].settle(Stage::Write, last_byte),
                false => accounts[followed].deliver(&choice.coming, 0, choice.step, last_byte),
            }
        }
        (accounts, followed)
    }

    fn record(&self, outcome: Outcome, status: u16, refusal: Option<String>, last_byte: Ns) -> Record {
        let (accounts, followed) = self.accounts_at(last_byte);
        let ttft_ns = accounts.iter().filter_map(Account::ttft_ns).min();
        let several = self.choices.len() > 1;
        let choices = self.choices.iter().enumerate().map(|(index, choice)| ChoiceRecord {
            index,
            tokens: choice.generated,
            finish_reason: choice.finish.map(str::to_owned),
            stages: accounts[index].stages(),
            units: if several && index != followed { accounts[index].units().0.to_vec() } else { Vec::new() },
        });
        let account = &accounts[followed];
        let (units, tokens_dropped) = account.units();
        Record {
            schema: Record::SCHEMA,
            id: self.id,
            model: self.model.clone(),
            outcome,
            status,
            refusal,
            began_unix_ns: unix_ns(self.opened),
            e2e_ns: account.delivered() - account.opened(),
            ttft_ns,
            stages: account.stages(),
            hidden: account.hidden(),
            prompt: self.prompt.clone(),
            tokens: units.to_vec(),
            tokens_dropped,
            completion_tokens: self.choices.iter().map(|choice| choice.generated).sum(),
            choices: choices.collect(),
            ignored: self.ignored.clone(),
            open: false,
            overhead_ns: 0,
        }
    }
}
