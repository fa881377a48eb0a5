//! Development tasks, run as `cargo xtask NAME`.

fn main() -> anyhow::Result<()> {
    anyhow::bail!("usage: cargo xtask demo|ci|golden|tidy")
}
