//! What fits: the operator's capacity and what is taken of it.

use std::collections::HashMap;

use sandbox_protocol::{Failure, FailureCode, SandboxId};

use crate::request::Resources;

/// What an operator gives to sandboxes, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Sandboxes at once.
    pub sandboxes: u32,
    /// Cores, memory and disk that they share. Cores may be promised more than once.
    pub resources: Resources,
    /// Cores that one sandbox can use: the host's.
    pub cpu_cores_each_max: u64,
}

/// Who holds what.
#[derive(Debug)]
pub struct Admission {
    capacity: Capacity,
    held: HashMap<SandboxId, Resources>,
}

impl Admission {
    /// Nothing taken yet.
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, held: HashMap::new() }
    }

    /// Takes `wanted` for `id`; a repeat changes nothing.
    ///
    /// # Errors
    /// `NoCapacity`, naming what is short.
    pub fn admit(&mut self, id: SandboxId, wanted: Resources) -> Result<(), Failure> {
        if self.held.contains_key(&id) {
            return Ok(());
        }
        if let Some(short) = self.short_of(wanted) {
            return Err(Failure::new(FailureCode::NoCapacity, format!("no {short} left for another sandbox")));
        }
        self.held.insert(id, wanted);
        Ok(())
    }

    /// Takes `wanted` for a sandbox that exists already, also beyond the capacity: it is there, whatever was set since.
    pub fn readmit(&mut self, id: SandboxId, wanted: Resources) {
        self.held.insert(id, wanted);
    }

    /// Gives back what `id` holds.
    pub fn release(&mut self, id: SandboxId) {
        self.held.remove(&id);
    }

    /// How many sandboxes hold something.
    pub fn sandboxes(&self) -> usize {
        self.held.len()
    }

    fn short_of(&self, wanted: Resources) -> Option<&'static str> {
        let taken = self.held.values().fold(wanted, |sum, held| sum.plus(*held));
        let most = self.capacity.resources;
        if self.held.len() >= self.capacity.sandboxes as usize {
            Some("slot")
        } else if taken.cpu_cores > most.cpu_cores || wanted.cpu_cores > self.capacity.cpu_cores_each_max {
            Some("core")
        } else if taken.memory_mb > most.memory_mb {
            Some("memory")
        } else if taken.disk_gb > most.disk_gb {
            Some("disk")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_protocol::CallKey;

    fn id(call: u64) -> SandboxId {
        SandboxId { origin: CallKey { service: 1, call }, slot: 0 }
    }

    const SMALL: Resources = Resources { cpu_cores: 1, memory_mb: 512, disk_gb: 5 };

    fn admission(sandboxes: u32) -> Admission {
        let resources = Resources { cpu_cores: 4, memory_mb: 1_024, disk_gb: 100 };
        Admission::new(Capacity { sandboxes, resources, cpu_cores_each_max: 2 })
    }

    #[test]
    fn the_last_byte_fits_and_the_next_does_not() {
        let mut admission = admission(10);
        assert_eq!(admission.admit(id(0), SMALL), Ok(()));
        assert_eq!(admission.admit(id(1), SMALL), Ok(()));
        let refused = admission.admit(id(2), SMALL).unwrap_err();
        assert_eq!(refused.to_string(), "no_capacity: no memory left for another sandbox");
    }

    #[test]
    fn a_repeat_takes_nothing_and_a_release_gives_all_back() {
        let mut admission = admission(1);
        assert_eq!(admission.admit(id(0), SMALL), Ok(()));
        assert_eq!(admission.admit(id(0), SMALL), Ok(()));
        assert_eq!(admission.admit(id(1), SMALL).unwrap_err().message, "no slot left for another sandbox");
        admission.release(id(0));
        assert_eq!(admission.admit(id(1), SMALL), Ok(()));
    }

    #[test]
    fn no_sandbox_gets_more_cores_than_the_host_has() {
        let cores = |cpu_cores| Resources { cpu_cores, ..SMALL };
        assert_eq!(admission(10).admit(id(0), cores(2)), Ok(()));
        assert_eq!(admission(10).admit(id(0), cores(3)).unwrap_err().message, "no core left for another sandbox");
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut admission = admission(10);
        let huge = Resources { cpu_cores: u64::MAX, memory_mb: u64::MAX, disk_gb: u64::MAX };
        admission.readmit(id(0), huge);
        assert!(admission.admit(id(1), huge).is_err());
    }
}
