//! How much memory there is.

use sysinfo::System;

use crate::bytesize::ByteSize;

/// What this process can still take: of the machine's memory, and of its container's limit where there is one. `None` where the
/// system does not say.
pub fn free() -> Option<ByteSize> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let of_machine = system.available_memory();
    Some(ByteSize(system.cgroup_limits().map_or(of_machine, |limits| limits.free_memory.min(of_machine))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_memory_is_free_and_less_than_there_is() {
        let mut system = System::new().unwrap();
        system.refresh_memory();
        let free = free().unwrap();
        assert!((1 << 20..system.total_memory()).contains(&free.0), "{free}");
    }
}
