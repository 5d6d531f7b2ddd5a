//! What fits: the operator's capacity and what is taken of it.

use std::collections::HashMap;

use alloy_primitives::Address;
use sandbox_protocol::{Failure, FailureCode, SandboxId};

use crate::request::Resources;
use crate::sandbox::{Phase, Sandbox};

/// What an operator gives to sandboxes, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Sandboxes at once.
    pub sandboxes: u32,
    /// Of those, sandboxes of one customer.
    pub sandboxes_each_max: u32,
    /// Cores, memory and disk that they share. Cores may be promised more than once.
    pub resources: Resources,
    /// Cores that one sandbox can use: the host's.
    pub cpu_cores_each_max: u64,
}

/// Who holds what.
#[derive(Debug)]
pub struct Admission {
    capacity: Capacity,
    held: HashMap<SandboxId, Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    owner: Address,
    resources: Resources,
    rests: bool,
    /// It is of the operator's own making, so its customer does not answer for its number.
    child: bool,
}

impl Held {
    const fn by(sandbox: &Sandbox, rests: bool) -> Self {
        let child = sandbox.child.is_some();
        Self { owner: sandbox.owner, resources: sandbox.spec.resources, rests, child }
    }

    /// A resting sandbox takes disk and nothing else.
    const fn counts(&self) -> Resources {
        let Resources { cpu_cores, memory_mb, disk_gb } = self.resources;
        if self.rests {
            Resources { cpu_cores: 0, memory_mb: 0, disk_gb }
        } else {
            Resources { cpu_cores, memory_mb, disk_gb }
        }
    }
}

impl Admission {
    /// Nothing taken yet.
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, held: HashMap::new() }
    }

    /// Takes what a sandbox asks for; a repeat changes nothing.
    ///
    /// # Errors
    /// `NoCapacity`, naming what is short.
    pub fn admit(&mut self, sandbox: &Sandbox) -> Result<(), Failure> {
        if self.held.contains_key(&sandbox.id) {
            return Ok(());
        }
        if self.held.len() >= self.capacity.sandboxes as usize {
            return Err(short_of("slot"));
        }
        let own = self.held.values().filter(|held| held.owner == sandbox.owner && !held.child).count();
        if sandbox.child.is_none() && own >= self.capacity.sandboxes_each_max as usize {
            let message = format!("this operator gives a customer {own} sandboxes at most");
            return Err(Failure::new(FailureCode::NoCapacity, message));
        }
        let wanted = sandbox.spec.resources;
        self.check(wanted, wanted)?;
        self.held.insert(sandbox.id, Held::by(sandbox, false));
        Ok(())
    }

    /// Whether there is room for it where nothing else is held: if not, waiting is of no use.
    ///
    /// # Errors
    /// As [`Admission::admit`].
    pub fn could_admit(&self, sandbox: &Sandbox) -> Result<(), Failure> {
        Self::new(self.capacity).admit(sandbox)
    }

    /// Takes it for a sandbox that exists already, also beyond the capacity: it is there, whatever was set since.
    pub fn readmit(&mut self, sandbox: &Sandbox) {
        let rests = matches!(sandbox.phase, Phase::Stopped(_));
        self.held.insert(sandbox.id, Held::by(sandbox, rests));
    }

    /// Gives back the cores and the memory of a sandbox that has come to rest.
    pub fn rest(&mut self, id: SandboxId) {
        if let Some(held) = self.held.get_mut(&id) {
            held.rests = true;
        }
    }

    /// Takes them again; a repeat changes nothing.
    ///
    /// # Errors
    /// `NoCapacity`, naming what is short.
    pub fn wake(&mut self, id: SandboxId) -> Result<(), Failure> {
        let Some(held) = self.held.get(&id).copied().filter(|held| held.rests) else { return Ok(()) };
        self.check(Resources { disk_gb: 0, ..held.resources }, held.resources)?;
        self.held.insert(id, Held { rests: false, ..held });
        Ok(())
    }

    /// Gives back what `id` holds.
    pub fn release(&mut self, id: SandboxId) {
        self.held.remove(&id);
    }

    /// How many sandboxes hold something.
    pub fn sandboxes(&self) -> usize {
        self.held.len()
    }

    /// Whether there is room for `more` on top of what is held, for a sandbox of `all` in the end.
    fn check(&self, more: Resources, all: Resources) -> Result<(), Failure> {
        let taken = self.held.values().fold(more, |sum, held| sum.plus(held.counts()));
        let most = self.capacity.resources;
        if taken.cpu_cores > most.cpu_cores || all.cpu_cores > self.capacity.cpu_cores_each_max {
            Err(short_of("core"))
        } else if taken.memory_mb > most.memory_mb {
            Err(short_of("memory"))
        } else if taken.disk_gb > most.disk_gb {
            Err(short_of("disk"))
        } else {
            Ok(())
        }
    }
}

fn short_of(what: &str) -> Failure {
    Failure::new(FailureCode::NoCapacity, format!("no {what} left for another sandbox"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes;

    fn of(call: u64, resources: Resources) -> Sandbox {
        let mut sandbox = fakes::sandbox(call);
        sandbox.spec.resources = resources;
        sandbox
    }

    fn id(call: u64) -> SandboxId {
        fakes::sandbox(call).id
    }

    const SMALL: Resources = Resources { cpu_cores: 1, memory_mb: 512, disk_gb: 5 };

    fn admission(sandboxes: u32) -> Admission {
        let resources = Resources { cpu_cores: 4, memory_mb: 1_024, disk_gb: 100 };
        Admission::new(Capacity { sandboxes, sandboxes_each_max: 4, resources, cpu_cores_each_max: 2 })
    }

    #[test]
    fn the_last_byte_fits_and_the_next_does_not() {
        let mut admission = admission(10);
        assert_eq!(admission.admit(&of(0, SMALL)), Ok(()));
        assert_eq!(admission.admit(&of(1, SMALL)), Ok(()));
        let refused = admission.admit(&of(2, SMALL)).unwrap_err();
        assert_eq!(refused.to_string(), "no_capacity: no memory left for another sandbox");
    }

    #[test]
    fn a_repeat_takes_nothing_and_a_release_gives_all_back() {
        let mut admission = admission(1);
        assert_eq!(admission.admit(&of(0, SMALL)), Ok(()));
        assert_eq!(admission.admit(&of(0, SMALL)), Ok(()));
        assert_eq!(admission.admit(&of(1, SMALL)).unwrap_err().message, "no slot left for another sandbox");
        admission.release(id(0));
        assert_eq!(admission.admit(&of(1, SMALL)), Ok(()));
    }

    #[test]
    fn no_sandbox_gets_more_cores_than_the_host_has() {
        let cores = |cpu_cores| Resources { cpu_cores, ..SMALL };
        assert_eq!(admission(10).admit(&of(0, cores(2))), Ok(()));
        assert_eq!(admission(10).admit(&of(0, cores(3))).unwrap_err().message, "no core left for another sandbox");
    }

    #[test]
    fn a_customer_has_its_own_most() {
        let tiny = Resources { cpu_cores: 0, memory_mb: 1, disk_gb: 1 };
        let mut admission = admission(10);
        for call in 0..4 {
            assert_eq!(admission.admit(&of(call, tiny)), Ok(()));
        }
        let refused = admission.admit(&of(4, tiny)).unwrap_err();
        assert_eq!(refused.to_string(), "no_capacity: this operator gives a customer 4 sandboxes at most");
        let other = Sandbox { owner: Address::repeat_byte(9), ..of(4, tiny) };
        assert_eq!(admission.admit(&other), Ok(()));
    }

    #[test]
    fn a_resting_sandbox_keeps_its_disk_and_slot_and_gives_its_memory_to_others() {
        let mut admission = admission(3);
        assert_eq!(admission.admit(&of(0, SMALL)), Ok(()));
        assert_eq!(admission.admit(&of(1, SMALL)), Ok(()));
        admission.rest(id(0));
        assert_eq!(admission.admit(&of(2, SMALL)), Ok(()));
        assert_eq!(admission.admit(&of(3, SMALL)).unwrap_err().message, "no slot left for another sandbox");
        assert_eq!(admission.wake(id(0)).unwrap_err().message, "no memory left for another sandbox");
        admission.release(id(1));
        assert_eq!(admission.wake(id(0)), Ok(()));
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut admission = admission(10);
        let huge = Resources { cpu_cores: u64::MAX, memory_mb: u64::MAX, disk_gb: u64::MAX };
        admission.readmit(&of(0, huge));
        assert!(admission.admit(&of(1, huge)).is_err());
    }
}
