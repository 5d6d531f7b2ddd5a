//! Which call is worked on next. Pure: who asks and who has ended arrive as arguments.
//!
//! Customers take turns, however much each has asked for, and so do the sandboxes of one customer. Calls of one sandbox
//! begin in the order of the chain. Those that change it (create, stop, resume, delete, snapshot) are followed by others
//! only when they have ended, and do not overlap; commands and the like run beside each other, up to a bound. Calls about
//! who may enter it are in order among themselves and wait for none of the others: a key is revoked at once.
//! Everything here is bounded: what finds no room stays on disk, and its owner is told so.

use std::collections::{HashMap, HashSet, VecDeque};

use alloy::primitives::Address;
use sandbox_protocol::{CallKey, SandboxId};

/// A call that is to be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Which call.
    pub(crate) key: CallKey,
    /// Job id.
    pub(crate) job: u8,
    /// Who asked.
    pub(crate) caller: Address,
    /// The sandbox that it is about, where it is about one.
    pub(crate) sandbox: Option<SandboxId>,
    /// How it goes with others of the same sandbox.
    pub(crate) manner: Manner,
}

/// How a call goes with others of the same sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Beside others of its kind.
    Beside,
    /// One after the other: it changes the sandbox.
    InTurn,
    /// One after the other, apart from all that is done in the sandbox or to it.
    Aside,
}

/// How much at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Calls worked on.
    pub(crate) jobs: usize,
    /// Of those, calls of one customer.
    pub(crate) jobs_each: usize,
    /// Of those, calls of one sandbox.
    pub(crate) jobs_sandbox: usize,
    /// Calls that wait.
    pub(crate) waiting: usize,
    /// Of those, calls of one customer.
    pub(crate) waiting_each: usize,
}

/// What became of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It waits for its turn.
    Taken,
    /// It waits already, or is being worked on.
    Known,
    /// There is no room; it is to be offered again.
    Full,
}

/// The calls that wait and those that are worked on.
#[derive(Debug)]
pub(crate) struct Fair {
    bounds: Bounds,
    customers: HashMap<Address, Customer>,
    /// Customers of whom calls wait, the next in front.
    turns: VecDeque<Address>,
    waiting: HashSet<CallKey>,
    running: HashMap<CallKey, Ticket>,
}

#[derive(Debug, Default)]
struct Customer {
    lanes: HashMap<LaneName, Lane>,
    /// Lanes in which calls wait, the next in front.
    turns: VecDeque<LaneName>,
    waiting: usize,
    running: usize,
}

/// Whose turns are taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LaneName {
    /// What is about no sandbox.
    None,
    /// What is done in a sandbox and to it.
    Sandbox(SandboxId),
    /// What is about who may enter it.
    Keys(SandboxId),
}

/// The calls of one sandbox, or all of one customer that are about none.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Ticket>,
    beside: usize,
    in_turn: usize,
}

impl Bounds {
    /// So many jobs at a time; no customer takes the last quarter of the places.
    pub(crate) const fn of_jobs(jobs: usize, jobs_sandbox: usize, waiting: usize, waiting_each: usize) -> Self {
        Self { jobs, jobs_each: jobs - jobs / 4, jobs_sandbox, waiting, waiting_each }
    }
}

impl Fair {
    /// Nothing to do.
    pub(crate) fn new(bounds: Bounds) -> Self {
        let (customers, turns) = Default::default();
        Self { bounds, customers, turns, waiting: HashSet::new(), running: HashMap::new() }
    }

    /// Has a call wait for its turn.
    pub(crate) fn offer(&mut self, ticket: Ticket) -> Offered {
        if self.waiting.contains(&ticket.key) || self.running.contains_key(&ticket.key) {
            return Offered::Known;
        }
        let customer = self.customers.entry(ticket.caller).or_default();
        if self.waiting.len() >= self.bounds.waiting || customer.waiting >= self.bounds.waiting_each {
            return Offered::Full;
        }
        if customer.waiting == 0 {
            self.turns.push_back(ticket.caller);
        }
        self.waiting.insert(ticket.key);
        customer.push(ticket);
        Offered::Taken
    }

    /// The call whose turn it is; it is worked on until [`Fair::done`].
    pub(crate) fn next(&mut self) -> Option<Ticket> {
        if self.running.len() >= self.bounds.jobs {
            return None;
        }
        for _ in 0..self.turns.len() {
            let caller = self.turns.pop_front()?;
            let Some(customer) = self.customers.get_mut(&caller) else { continue };
            let ticket = customer.next(&self.bounds);
            if customer.waiting > 0 {
                self.turns.push_back(caller);
            }
            if let Some(ticket) = ticket {
                self.waiting.remove(&ticket.key);
                self.running.insert(ticket.key, ticket);
                return Some(ticket);
            }
        }
        None
    }

    /// A call is worked on no more.
    pub(crate) fn done(&mut self, key: CallKey) {
        let Some(ticket) = self.running.remove(&key) else { return };
        let Some(customer) = self.customers.get_mut(&ticket.caller) else { return };
        customer.done(&ticket);
        if customer.is_idle() {
            self.customers.remove(&ticket.caller);
        }
    }

    /// Takes back a call that waits; whether it did.
    pub(crate) fn withdraw(&mut self, key: CallKey) -> bool {
        if !self.waiting.remove(&key) {
            return false;
        }
        let found = self.customers.iter_mut().find_map(|(caller, customer)| customer.withdraw(key).then_some(*caller));
        if let Some(caller) = found
            && let Some(customer) = self.customers.get(&caller)
            && customer.waiting == 0
        {
            self.turns.retain(|waiting| *waiting != caller);
            if customer.is_idle() {
                self.customers.remove(&caller);
            }
        }
        true
    }

    /// Whether the call is worked on.
    pub(crate) fn is_running(&self, key: CallKey) -> bool {
        self.running.contains_key(&key)
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many calls are worked on.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }
}

impl Ticket {
    const fn lane(&self) -> LaneName {
        match (self.sandbox, self.manner) {
            (None, _) => LaneName::None,
            (Some(sandbox), Manner::Beside | Manner::InTurn) => LaneName::Sandbox(sandbox),
            (Some(sandbox), Manner::Aside) => LaneName::Keys(sandbox),
        }
    }
}

impl Customer {
    fn push(&mut self, ticket: Ticket) {
        let lane = self.lanes.entry(ticket.lane()).or_default();
        if lane.waiting.is_empty() {
            self.turns.push_back(ticket.lane());
        }
        lane.waiting.push_back(ticket);
        self.waiting += 1;
    }

    fn next(&mut self, bounds: &Bounds) -> Option<Ticket> {
        if self.running >= bounds.jobs_each {
            return None;
        }
        for _ in 0..self.turns.len() {
            let name = self.turns.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            let bound = if name == LaneName::None { usize::MAX } else { bounds.jobs_sandbox };
            let ticket = lane.next(bound);
            if !lane.waiting.is_empty() {
                self.turns.push_back(name);
            }
            if ticket.is_some() {
                self.waiting -= 1;
                self.running += 1;
                return ticket;
            }
        }
        None
    }

    fn done(&mut self, ticket: &Ticket) {
        self.running = self.running.saturating_sub(1);
        let Some(lane) = self.lanes.get_mut(&ticket.lane()) else { return };
        match ticket.manner {
            Manner::Beside => lane.beside = lane.beside.saturating_sub(1),
            Manner::InTurn | Manner::Aside => lane.in_turn = lane.in_turn.saturating_sub(1),
        }
        if lane.is_idle() {
            self.lanes.remove(&ticket.lane());
        }
    }

    fn withdraw(&mut self, key: CallKey) -> bool {
        let found = self.lanes.iter_mut().find_map(|(name, lane)| lane.withdraw(key).then_some(*name));
        let Some(name) = found else { return false };
        self.waiting -= 1;
        if let Some(lane) = self.lanes.get(&name)
            && lane.waiting.is_empty()
        {
            self.turns.retain(|waiting| *waiting != name);
            if lane.is_idle() {
                self.lanes.remove(&name);
            }
        }
        true
    }

    const fn is_idle(&self) -> bool {
        self.waiting == 0 && self.running == 0
    }
}

impl Lane {
    fn next(&mut self, beside_max: usize) -> Option<Ticket> {
        let ticket = *self.waiting.front()?;
        let may_begin = self.in_turn == 0 && (ticket.manner != Manner::Beside || self.beside < beside_max);
        if !may_begin {
            return None;
        }
        match ticket.manner {
            Manner::Beside => self.beside += 1,
            Manner::InTurn | Manner::Aside => self.in_turn += 1,
        }
        self.waiting.pop_front()
    }

    fn withdraw(&mut self, key: CallKey) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|ticket| ticket.key != key);
        self.waiting.len() < before
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.beside == 0 && self.in_turn == 0
    }
}

#[cfg(test)]
mod tests;
