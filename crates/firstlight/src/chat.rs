//! `firstlight chat`: a conversation in the terminal, each answer with where its time went.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use ledger::Record;
use observe::{Style, summary, waterfall};
use serde_json::{Value, json};

use crate::client::Client;
use crate::flags::ChatFlags;
use crate::wiring;

const HELP: &str = "/why  where the last answer's time went\n/new  forget the conversation\n/quit leave";
/// How long to wait for an answer's account, which is closed after the answer's last byte.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// Talks until the user leaves or standard input ends.
pub fn run(flags: &ChatFlags) -> anyhow::Result<()> {
    wiring::runtime()?.block_on(async {
        let own = match &flags.url {
            Some(_) => None,
            None => Some(wiring::Server::start_private(&flags.engine).await?),
        };
        let url = flags.url.clone().or_else(|| own.as_ref().map(wiring::Server::url)).unwrap_or_default();
        let mut chat = Chat::new(Client::new(&url, flags.api_key.clone())?, flags);
        let outcome = chat.talk().await;
        if let Some(server) = own {
            server.stop().await;
        }
        outcome
    })
}

struct Chat<'a> {
    client: Client,
    flags: &'a ChatFlags,
    messages: Vec<Value>,
    last: Option<Record>,
}

impl<'a> Chat<'a> {
    fn new(client: Client, flags: &'a ChatFlags) -> Self {
        let mut chat = Chat { client, flags, messages: Vec::new(), last: None };
        chat.forget();
        chat
    }

    fn forget(&mut self) {
        self.messages.clear();
        if let Some(system) = &self.flags.system {
            self.messages.push(json!({ "role": "system", "content": system }));
        }
    }

    async fn talk(&mut self) -> anyhow::Result<()> {
        if let Some(message) = &self.flags.message {
            return self.say(message).await;
        }
        println!("{HELP}\n");
        let mut line = String::new();
        loop {
            if std::io::stdin().is_terminal() {
                print!("> ");
                std::io::stdout().flush()?;
            }
            line.clear();
            if std::io::stdin().lock().read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim() {
                "" => {}
                "/quit" | "/exit" => return Ok(()),
                "/new" => self.forget(),
                "/why" => match &self.last {
                    Some(record) => println!("{}", waterfall(record, style())),
                    None => println!("Nothing was answered yet."),
                },
                command if command.starts_with('/') => println!("{HELP}"),
                text => {
                    let text = text.to_owned();
                    if let Err(error) = self.say(&text).await {
                        // The question is taken back, so that the conversation can go on without it.
                        self.messages.pop();
                        println!("error: {error:#}");
                    }
                }
            }
        }
    }

    /// Sends `text`, prints the answer as it comes, and the account after it.
    async fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.messages.push(json!({ "role": "user", "content": text }));
        let mut body = json!({
            "messages": self.messages,
            "stream": true,
            "max_tokens": self.flags.max_tokens,
            "include_lifecycle": true,
        });
        if let Some(temperature) = self.flags.temperature {
            body["temperature"] = json!(temperature);
        }
        let mut answer = String::new();
        let mut lifecycle = None;
        let streamed = self.client.stream("/v1/chat/completions", &body, |event| {
            if let Some(piece) = event["choices"][0]["delta"]["content"].as_str() {
                answer.push_str(piece);
                print!("{piece}");
                std::io::stdout().flush()?;
            }
            if event["lifecycle"].is_object() {
                lifecycle = Some(event["lifecycle"].clone());
            }
            Ok(())
        });
        streamed.await?;
        println!("\n");
        self.messages.push(json!({ "role": "assistant", "content": answer }));
        if let Some(open) = lifecycle {
            let record = self.account(open).await?;
            match self.flags.waterfall {
                true => println!("{}", waterfall(&record, style())),
                false => println!("{}\n", dim(&summary(&record))),
            }
            self.last = Some(record);
        }
        Ok(())
    }

    /// The closed account; if the server has dropped it already, the open one that came with the answer.
    async fn account(&self, open: Value) -> anyhow::Result<Record> {
        let path = format!("/v1/requests/{}/lifecycle", open["id"].as_str().unwrap_or_default());
        let closed = self.client.get_patiently(&path, ACCOUNT_PATIENCE).await;
        Ok(serde_json::from_value(closed.unwrap_or(open))?)
    }
}

fn style() -> Style {
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(110);
    Style { width, colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
}

fn dim(text: &str) -> String {
    if style().colour { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}
