//! SIGTERM and Ctrl-C: the first one drains, the second one ends.

/// Resolves at the first SIGTERM or SIGINT.
pub async fn first() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            outcome = tokio::signal::ctrl_c() => outcome,
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
