//! One process at a time fetches a model. The lock is the operating system's: it goes when its process does, however
//! that ends, so a lock is never left behind.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::error::CatalogueError;

/// Held until dropped. The file itself stays: removing it would let two processes lock two files of one name.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path`; calls `waiting` once if another process has it, and then waits for that one.
    pub fn acquire(path: &Path, waiting: &mut dyn FnMut()) -> Result<Lock, CatalogueError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(CatalogueError::io("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock().map_err(CatalogueError::io("lock", path))?;
            }
            Err(TryLockError::Error(error)) => return Err(CatalogueError::io("lock", path)(error)),
        }
        Ok(Lock { _file: file })
    }
}
