//! `firstlight model ls|pull|inspect`.

mod inspect;
mod pull;

use catalogue::{Catalogue, Presence};

use crate::bytesize::ByteSize;
use crate::flags::ModelCommand;

pub use pull::{Present, loading_bar, present};

/// Runs one of the model commands.
pub fn run(command: &ModelCommand) -> anyhow::Result<()> {
    match command {
        ModelCommand::Ls => list(),
        ModelCommand::Pull { name } => {
            let path = pull::pull(name.as_deref().unwrap_or(Catalogue::default_name()))?;
            println!("{}", path.display());
            Ok(())
        }
        ModelCommand::Inspect { model, template, tensors } => {
            inspect::run(&model.to_string_lossy(), *template, *tensors)
        }
    }
}

fn list() -> anyhow::Result<()> {
    let catalogue = Catalogue::builtin();
    println!("{:<30}{:>10}  {:<22}{:<16}title", "name", "size", "here", "licence");
    for entry in catalogue.list()? {
        let here = match entry.presence {
            Presence::Present => "yes".to_owned(),
            Presence::Partial { bytes } => format!("{} fetched", ByteSize(bytes)),
            Presence::Absent => "no".to_owned(),
        };
        let size = ByteSize(entry.model.bytes).to_string();
        println!(
            "{:<30}{size:>10}  {here:<22}{:<16}{}",
            entry.model.name, entry.model.licence, entry.model.title
        );
    }
    println!("\nAny local .gguf file works as well: firstlight serve PATH.gguf");
    Ok(())
}
